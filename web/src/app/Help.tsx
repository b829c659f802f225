import { Dialog, Kbd, useShortcuts } from "@/ui";

/** "?": the keys that work right now. */
export function Help({ open, onClose }: { open: boolean; onClose: () => void }) {
  const shortcuts = useShortcuts();
  const groups = Map.groupBy(shortcuts, (shortcut) => shortcut.group);
  return (
    <Dialog title="Keys" open={open} onClose={onClose}>
      <div className="flex flex-col gap-4">
        {[...groups].map(([group, entries]) => (
          <section key={group}>
            <h3 className="mb-1 text-xs font-medium text-faint">{group}</h3>
            <ul>
              {[...new Map(entries.map((entry) => [entry.keys, entry])).values()].map((entry) => (
                <li key={entry.keys} className="flex h-8 items-center justify-between border-b border-line text-sm last:border-0">
                  {entry.label}
                  <Kbd keys={entry.keys} />
                </li>
              ))}
            </ul>
          </section>
        ))}
      </div>
    </Dialog>
  );
}
