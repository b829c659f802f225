/** One key, or several pressed after another ("g t"). */
export function Kbd({ keys }: { keys: string }) {
  return (
    <span className="inline-flex gap-1">
      {keys.split(" ").map((key) => (
        <kbd key={key} className="inline-flex h-5 min-w-5 items-center justify-center rounded border border-line-strong bg-sunken px-1 text-[11px] text-soft">
          {key}
        </kbd>
      ))}
    </span>
  );
}
