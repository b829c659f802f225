import { ArrowUp } from "lucide-react";
import { useVirtualizer } from "@tanstack/react-virtual";
import { useEffect, useRef, useState, type MouseEvent, type ReactNode } from "react";
import { cx } from "./cx";
import { settle } from "./settle";
import { useShortcut } from "./shortcuts";
import { useWidth } from "./useWidth";

export interface Column<Row> {
  id: string;
  header: string;
  cell: (row: Row) => ReactNode;
  /** A CSS grid track: "120px", "minmax(160px, 1fr)". */
  width: string;
  align?: "right";
  /** The name of the row: where rows lead somewhere, it is a link. */
  isName?: true;
  /** Left out while the table is narrower than this. */
  from?: number;
  /** Left out once the table is this wide. */
  until?: number;
}

export interface TableProps<Row> {
  label: string;
  rows: readonly Row[];
  columns: readonly Column<Row>[];
  rowKey: (row: Row) => string;
  selected?: string | null;
  onOpen?: (row: Row) => void;
  /** Where the row leads: its name is a link to it, and a click with Ctrl or the middle button opens a new tab anywhere. */
  href?: (row: Row) => string;
  /** Hold new rows back while the reader has scrolled down, behind a pill that says how many. */
  still?: boolean;
  /** Called when the end comes near: the moment to load the next page. */
  onEnd?: () => void;
  /** After the last row, e.g. a skeleton while the next page loads. */
  footer?: ReactNode;
}

const ROW_PX = 36;
/** Below this many rows the browser is quick enough, and search-in-page finds everything. */
const VIRTUAL_FROM = 200;
const NEAR_END_PX = 600;

/** A dense list. j/k move, Enter opens; columns leave when there is no room; virtualised when long. */
export function Table<Row extends object>({ label, rows, columns, rowKey, selected, onOpen, href, still, onEnd, footer }: TableProps<Row>) {
  const scroller = useRef<HTMLDivElement>(null);
  const width = useWidth(scroller);
  const [held, setHeld] = useState<readonly string[] | null>(null);
  const [cursor, setCursor] = useState<string | null>(null);
  const settled = still && held ? settle(held, rows, rowKey) : { rows, waiting: 0 };
  const shown = settled.rows;
  const columnsShown = columns.filter((column) => width >= (column.from ?? 0) && width < (column.until ?? Number.POSITIVE_INFINITY));
  const template = columnsShown.map((column) => column.width).join(" ");
  const current = cursor ?? selected ?? null;
  const isVirtual = shown.length > VIRTUAL_FROM;

  // It keeps what it measures to itself, so the compiler leaves this component alone.
  // oxlint-disable-next-line react/incompatible-library
  const virtualizer = useVirtualizer({
    count: shown.length,
    getScrollElement: () => scroller.current,
    estimateSize: () => ROW_PX,
    overscan: 12,
    enabled: isVirtual,
  });

  useEffect(() => {
    const node = scroller.current;
    if (node && onEnd && node.scrollHeight <= node.clientHeight && node.clientHeight > 0) onEnd();
  }, [onEnd, rows.length]);

  function onScroll() {
    const node = scroller.current;
    if (!node) return;
    const away = node.scrollTop > ROW_PX / 2;
    if (still && away !== (held !== null)) setHeld(away ? rows.map(rowKey) : null);
    if (onEnd && node.scrollHeight - node.scrollTop - node.clientHeight < NEAR_END_PX) onEnd();
  }

  function move(step: number) {
    const at = shown.findIndex((row) => rowKey(row) === current);
    const next = Math.max(0, Math.min(shown.length - 1, at < 0 ? 0 : at + step));
    const row = shown[next];
    if (!row) return;
    setCursor(rowKey(row));
    if (isVirtual) virtualizer.scrollToIndex(next);
    const node = scroller.current?.querySelector<HTMLElement>(`[data-index="${next}"]`);
    if (!isVirtual) node?.scrollIntoView({ block: "nearest" });
    // The focus goes along, so that Tab goes on from here and a panel can give it back.
    node?.focus({ preventScroll: true });
  }

  function open(row: Row, event?: MouseEvent) {
    if (event && href && (event.ctrlKey || event.metaKey || event.button === 1)) {
      window.open(href(row), "_blank", "noopener");
      return;
    }
    setCursor(rowKey(row));
    onOpen?.(row);
  }

  useShortcut({ keys: "j", label: "Next row", group: "List", repeats: true }, () => move(1));
  useShortcut({ keys: "k", label: "Previous row", group: "List", repeats: true }, () => move(-1));
  useShortcut(
    { keys: "Enter", label: "Open the row", group: "List" },
    () => {
      const row = shown.find((candidate) => rowKey(candidate) === current);
      if (row) open(row);
    },
    // A focused button or link keeps its own Enter.
    Boolean(onOpen),
  );

  function renderRow(row: Row, index: number, top?: number) {
    const key = rowKey(row);
    return (
      <div
        key={key}
        role="row"
        aria-rowindex={index + 2}
        aria-selected={key === (selected ?? current)}
        data-index={index}
        tabIndex={onOpen ? 0 : undefined}
        onClick={(event) => open(row, event)}
        onAuxClick={(event) => event.button === 1 && open(row, event)}
        onFocus={() => setCursor(key)}
        onKeyDown={(event) => {
          if (event.key !== "Enter" || event.target !== event.currentTarget) return;
          event.preventDefault();
          open(row);
        }}
        style={{ gridTemplateColumns: template, ...(top === undefined ? {} : { position: "absolute", top, left: 0, right: 0 }) }}
        className={cx(
          "grid h-9 items-center gap-4 border-b border-line px-6 text-sm max-phone:gap-3 max-phone:px-4",
          onOpen && "cursor-pointer hover:bg-hover",
          key === selected ? "bg-accent-tint" : key === current && "bg-hover",
          "-outline-offset-2 animate-enter",
        )}
      >
        {columnsShown.map((column) => (
          <div key={column.id} role="cell" className={cx("min-w-0 truncate", column.align === "right" && "text-right")}>
            {column.isName && href ? <RowLink href={href(row)}>{column.cell(row)}</RowLink> : column.cell(row)}
          </div>
        ))}
      </div>
    );
  }

  return (
    <div className="relative flex min-h-0 flex-1 flex-col">
      {settled.waiting > 0 && (
        <button
          type="button"
          onClick={() => {
            setHeld(null);
            scroller.current?.scrollTo({ top: 0 });
          }}
          className="absolute top-11 left-1/2 z-10 inline-flex h-7 -translate-x-1/2 animate-enter items-center gap-1.5 rounded-full bg-accent-strong px-3 text-xs font-medium text-on-accent shadow-float dark:bg-accent"
        >
          <ArrowUp className="size-3.5" aria-hidden />
          {settled.waiting} new
        </button>
      )}
      <div ref={scroller} role="table" aria-label={label} aria-rowcount={shown.length + 1} onScroll={onScroll} className="min-h-0 flex-1 overflow-y-auto">
        <div
          role="row"
          aria-rowindex={1}
          style={{ gridTemplateColumns: template }}
          className="sticky top-0 z-[5] grid h-8 items-center gap-4 border-b border-line bg-sunken px-6 text-xs text-faint max-phone:gap-3 max-phone:px-4"
        >
          {columnsShown.map((column) => (
            <div key={column.id} role="columnheader" className={cx("truncate", column.align === "right" && "text-right")}>
              {column.header}
            </div>
          ))}
        </div>
        {isVirtual ? (
          <div role="rowgroup" className="relative" style={{ height: virtualizer.getTotalSize() }}>
            {virtualizer.getVirtualItems().map((item) => {
              const row = shown[item.index];
              return row === undefined ? null : renderRow(row, item.index, item.start);
            })}
          </div>
        ) : (
          <div role="rowgroup">{shown.map((row, index) => renderRow(row, index))}</div>
        )}
        {footer}
      </div>
    </div>
  );
}

/** A plain click is the row's, which opens it in place; any other is the browser's. The row has the focus, so Tab skips it. */
function RowLink({ href, children }: { href: string; children: ReactNode }) {
  return (
    <a
      href={href}
      tabIndex={-1}
      className="block truncate"
      onClick={(event) => {
        if (event.ctrlKey || event.metaKey || event.shiftKey || event.altKey) event.stopPropagation();
        else event.preventDefault();
      }}
      onAuxClick={(event) => event.stopPropagation()}
    >
      {children}
    </a>
  );
}
