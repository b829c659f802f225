import { useLayoutEffect, useState, type RefObject } from "react";

/** The width of an element, as it changes. Wide until it is known (and where nothing is laid out, as in tests). */
export function useWidth(element: RefObject<HTMLElement | null>): number {
  const [width, setWidth] = useState(Number.MAX_SAFE_INTEGER);
  useLayoutEffect(() => {
    const node = element.current;
    if (!node || typeof ResizeObserver === "undefined") return;
    const observer = new ResizeObserver(() => setWidth(node.clientWidth));
    observer.observe(node);
    return () => observer.disconnect();
  }, [element]);
  return width;
}
