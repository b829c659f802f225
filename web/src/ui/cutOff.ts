/** What is cut off can be read on hover, wherever it is; what says more about itself keeps its own words. */
export function tellCutOff(event: PointerEvent): void {
  const node = event.target;
  if (!(node instanceof HTMLElement) || (node.title && node.dataset.cut === undefined)) return;
  const isCut = node.scrollWidth > node.clientWidth && getComputedStyle(node).textOverflow === "ellipsis";
  if (!isCut && node.dataset.cut === undefined) return;
  if (isCut) node.dataset.cut = "";
  else delete node.dataset.cut;
  node.title = isCut ? (node.textContent ?? "") : "";
}

export function listenForCutOff(): () => void {
  document.addEventListener("pointerover", tellCutOff);
  return () => document.removeEventListener("pointerover", tellCutOff);
}
