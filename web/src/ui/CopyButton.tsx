import { Check, Copy } from "lucide-react";
import { useEffect, useState } from "react";
import { IconButton } from "./Button";
import { toast } from "./Toast";

/** `navigator.clipboard` exists only in secure contexts; a console on plain http elsewhere than localhost needs the older way. */
async function writeClipboard(text: string): Promise<boolean> {
  if (navigator.clipboard) {
    await navigator.clipboard.writeText(text);
    return true;
  }
  const area = document.createElement("textarea");
  area.value = text;
  area.style.position = "fixed";
  area.style.opacity = "0";
  document.body.append(area);
  area.select();
  const done = document.execCommand("copy");
  area.remove();
  return done;
}

/** Copies and says so; a refusal by the browser is said too. */
export async function copyText(text: string, said = "Copied"): Promise<boolean> {
  const done = await writeClipboard(text).catch(() => false);
  toast(done ? said : "The browser did not allow copying", done ? "plain" : "error");
  return done;
}

export function CopyButton({ text, label = "Copy", className }: { text: string; label?: string; className?: string }) {
  const [copied, setCopied] = useState(false);
  useEffect(() => {
    if (!copied) return;
    const timer = setTimeout(() => setCopied(false), 1500);
    return () => clearTimeout(timer);
  }, [copied]);
  return (
    <IconButton
      label={label}
      size="small"
      className={className}
      onClick={(event) => {
        event.stopPropagation();
        void copyText(text).then(setCopied);
      }}
    >
      {copied ? <Check className="text-green" /> : <Copy />}
    </IconButton>
  );
}
