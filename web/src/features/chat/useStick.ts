import { useCallback, useEffect, useLayoutEffect, useRef, useState } from "react";

/** How near to the end counts as being there: less than a line. */
const NEAR = 24;

/**
 * Stays at the end of what grows, unless the reader has scrolled up; then it says that there is more below.
 * `content` grows inside `view`, which scrolls.
 */
export function useStick(resetKey: string) {
  const view = useRef<HTMLDivElement>(null);
  const content = useRef<HTMLDivElement>(null);
  const isAtEnd = useRef(true);
  const lastTop = useRef(0);
  const [isAway, setAway] = useState(false);
  const [hasMore, setMore] = useState(false);

  // At once: while a smooth scroll is under way the end moves on, and is never reached.
  const toEnd = useCallback(() => {
    const element = view.current;
    if (!element) return;
    isAtEnd.current = true;
    setMore(false);
    element.scrollTop = element.scrollHeight;
  }, []);

  const onScroll = useCallback(() => {
    const element = view.current;
    if (!element) return;
    const isNear = element.scrollHeight - element.scrollTop - element.clientHeight <= NEAR;
    // What has grown since the last look moves the end away; only who scrolls up leaves it.
    const at = isNear || (isAtEnd.current && element.scrollTop >= lastTop.current);
    lastTop.current = element.scrollTop;
    isAtEnd.current = at;
    setAway(!at);
    if (at) setMore(false);
  }, []);

  useLayoutEffect(() => {
    toEnd();
    // Another conversation begins at its end.
    // oxlint-disable-next-line react/exhaustive-effect-dependencies
  }, [resetKey, toEnd]);

  useEffect(() => {
    const inner = content.current;
    const outer = view.current;
    if (!inner || !outer || typeof ResizeObserver === "undefined") return;
    let height = inner.offsetHeight;
    const observer = new ResizeObserver(() => {
      const hasGrown = inner.offsetHeight > height;
      height = inner.offsetHeight;
      if (isAtEnd.current) outer.scrollTop = outer.scrollHeight;
      else if (hasGrown) setMore(true);
    });
    observer.observe(inner);
    observer.observe(outer);
    return () => observer.disconnect();
    // oxlint-disable-next-line react/exhaustive-effect-dependencies
  }, [resetKey]);

  return { view, content, onScroll, toEnd, isAway, hasMore };
}
