import { ArrowUp, FileText, Paperclip, Square, X } from "lucide-react";
import { useEffect, useId, useLayoutEffect, useRef, useState, type ClipboardEvent, type DragEvent, type KeyboardEvent } from "react";
import type { Model } from "@/api/types";
import { cx, formatBytes, IconButton, toast, useShortcut } from "@/ui";
import { AgentPicker } from "./AgentPicker";
import { chosen, readFile, type Attachment } from "./attachments";
import { draftOf, keepDraft } from "./chats";

interface ComposerProps {
  /** Which draft this is: one for each chat, and one for a chat to come. */
  draft: string;
  models: readonly Model[];
  agent: string;
  onAgent: (id: string) => void;
  isBusy: boolean;
  /** Why nothing can be sent now, shown beside the field; what is typed stays. */
  blocked?: string;
  placeholder: string;
  onSend: (text: string, files: readonly Attachment[]) => void;
  onStop: () => void;
}

/** Where one writes: Enter sends, Shift+Enter breaks the line, files are dropped, pasted or chosen. */
export function Composer({ draft, models, agent, onAgent, isBusy, blocked, placeholder, onSend, onStop }: ComposerProps) {
  const [text, setText] = useState(() => draftOf(draft));
  const [files, setFiles] = useState<readonly Attachment[]>([]);
  const [isOver, setOver] = useState(false);
  const area = useRef<HTMLTextAreaElement>(null);
  const picker = useRef<HTMLInputElement>(null);
  const noteId = useId();
  const canSend = !isBusy && blocked === undefined && agent !== "" && (text.trim() !== "" || files.length > 0);

  useEffect(() => {
    // Another chat was opened: the field stays, and keeps the focus, with what was begun there.
    // oxlint-disable-next-line react/set-state-in-effect
    setText(draftOf(draft));
    setFiles([]);
    // On a phone the keyboard would cover half of what one came to read.
    if (window.matchMedia("(hover: hover)").matches) area.current?.focus();
  }, [draft]);

  useLayoutEffect(() => {
    const element = area.current;
    if (!element) return;
    element.style.height = "auto";
    element.style.height = `${Math.min(element.scrollHeight, 240)}px`;
    // The text is what its height comes from.
    // oxlint-disable-next-line react/exhaustive-effect-dependencies
  }, [text]);

  useShortcut({ keys: "c", label: "Write a message", group: "Chat" }, () => area.current?.focus());

  function change(next: string) {
    setText(next);
    keepDraft(draft, next);
  }

  async function add(list: readonly File[]) {
    const { taken, refusals } = chosen(list, files);
    for (const refusal of refusals) toast(refusal, "error");
    const read = await Promise.all(taken.flatMap((index) => (list[index] ? [readFile(list[index])] : []))).catch((problem: unknown) => {
      toast(problem instanceof Error ? problem.message : "A file cannot be read", "error");
      return [];
    });
    setFiles((before) => [...before, ...read]);
    area.current?.focus();
  }

  function send() {
    if (!canSend) return;
    onSend(text.trim(), files);
    change("");
    setFiles([]);
  }

  function onKeyDown(event: KeyboardEvent) {
    // While an input method composes, Enter takes its suggestion.
    if (event.key !== "Enter" || event.shiftKey || event.nativeEvent.isComposing) return;
    event.preventDefault();
    send();
  }

  function onPaste(event: ClipboardEvent) {
    const pasted = [...event.clipboardData.files];
    if (pasted.length === 0) return;
    event.preventDefault();
    void add(pasted);
  }

  function onDrop(event: DragEvent) {
    event.preventDefault();
    setOver(false);
    void add([...event.dataTransfer.files]);
  }

  return (
    // Files are dropped anywhere on it; there is a button for them as well.
    // oxlint-disable-next-line jsx-a11y/no-noninteractive-element-interactions
    <form
      aria-label="Message"
      onSubmit={(event) => {
        event.preventDefault();
        send();
      }}
      onDragOver={(event) => {
        if (![...event.dataTransfer.types].includes("Files")) return;
        event.preventDefault();
        setOver(true);
      }}
      onDragLeave={(event) => !event.currentTarget.contains(event.relatedTarget as Node | null) && setOver(false)}
      onDrop={onDrop}
      className={cx(
        "relative rounded-lg border bg-raised transition-colors duration-[120ms] focus-within:border-faint",
        isOver ? "border-accent bg-accent-tint" : "border-line-strong",
      )}
    >
      {blocked && (
        <p id={noteId} role="status" className="border-b border-line px-3.5 py-2 text-xs text-amber">
          {blocked}
        </p>
      )}
      {files.length > 0 && <Files files={files} onRemove={(id) => setFiles(files.filter((file) => file.id !== id))} />}
      <textarea
        ref={area}
        rows={1}
        value={text}
        aria-label="Message"
        aria-describedby={blocked ? noteId : undefined}
        placeholder={isOver ? "Drop the files here" : placeholder}
        onChange={(event) => change(event.target.value)}
        onKeyDown={onKeyDown}
        onPaste={onPaste}
        className="block max-h-60 w-full resize-none bg-transparent px-3.5 pt-3 pb-1 text-base focus-visible:outline-none max-phone:text-lg"
      />
      <div className="flex items-center gap-1 p-1.5">
        <AgentPicker models={models} value={agent} onChange={onAgent} />
        <IconButton label="Attach files" onClick={() => picker.current?.click()}>
          <Paperclip />
        </IconButton>
        <input
          ref={picker}
          type="file"
          multiple
          hidden
          aria-label="Files"
          onChange={(event) => {
            void add([...(event.target.files ?? [])]);
            event.target.value = "";
          }}
        />
        <span className="flex-1" />
        {isBusy ? (
          <button type="button" aria-label="Stop" title="Stop" onClick={onStop} className="flex size-8 items-center justify-center rounded-md border border-line-strong text-ink hover:bg-hover">
            <Square className="size-3 fill-current" aria-hidden />
          </button>
        ) : (
          <button
            type="submit"
            aria-label="Send"
            title="Send (Enter)"
            disabled={!canSend}
            className="flex size-8 items-center justify-center rounded-md bg-accent-strong text-on-accent transition-opacity duration-[120ms] hover:opacity-90 disabled:bg-active disabled:text-faint dark:bg-accent dark:disabled:bg-active"
          >
            <ArrowUp className="size-4" aria-hidden />
          </button>
        )}
      </div>
    </form>
  );
}

function Files({ files, onRemove }: { files: readonly Attachment[]; onRemove: (id: string) => void }) {
  return (
    <ul aria-label="Attached files" className="flex flex-wrap gap-2 px-3 pt-3">
      {files.map((file) => (
        <li key={file.id} className="flex h-12 max-w-60 items-center gap-2 rounded-md border border-line bg-sunken pr-1 pl-1.5">
          {file.mediaType.startsWith("image/") ? (
            <img src={file.url} alt="" className="size-9 rounded object-cover" />
          ) : (
            <span className="flex size-9 items-center justify-center rounded bg-hover text-faint">
              <FileText className="size-4" aria-hidden />
            </span>
          )}
          <span className="min-w-0 text-xs">
            <span className="block truncate text-ink">{file.name}</span>
            <span className="text-faint">{formatBytes(file.size)}</span>
          </span>
          <IconButton label={`Remove ${file.name}`} size="small" onClick={() => onRemove(file.id)}>
            <X />
          </IconButton>
        </li>
      ))}
    </ul>
  );
}
