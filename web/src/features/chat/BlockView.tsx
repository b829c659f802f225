import { Braces, Brain, Check, ChevronRight, CircleX, Download, FileText, LoaderCircle } from "lucide-react";
import type { ReactNode } from "react";
import { apiUrl } from "@/api/client";
import { artifactsOf, readArtifact, type Artifact } from "@/features/tasks/a2a";
import { ArtifactView } from "@/features/tasks/canvas/Artifacts";
import { previewOf } from "@/features/tasks/canvas/media";
import { TextView } from "@/features/tasks/canvas/PartView";
import { JsonView, Markdown } from "@/ui";
import type { Block } from "./blocks";
import type { TaskData } from "./message";
import { useTaskRow, useTaskView } from "./taskRows";
import { TaskChip } from "./TaskChip";
import { chipOf } from "./tasks";

interface BlockProps {
  block: Block;
  isComing: boolean;
  openTask: string | undefined;
  onOpenTask: (taskId: string) => void;
  /** The task whose outcome is shown below its chip: that of an answer which was an acknowledgement. */
  resultOf: string | undefined;
}

/** One block of a message. */
export function BlockView({ block, isComing, openTask, onOpenTask, resultOf }: BlockProps): ReactNode {
  switch (block.kind) {
    case "text":
      return <Markdown text={block.text} />;
    case "reasoning":
      return <Reasoning text={block.text} isOpen={block.isOpen && isComing} />;
    case "file":
      return <FileBlock block={block} />;
    case "task":
      return (
        <div className="flex flex-col gap-3">
          <TaskChip data={block.data} isOpen={openTask === block.taskId} onOpen={onOpenTask} />
          {block.taskId === resultOf && <TaskResult data={block.data} />}
        </div>
      );
    case "artifact":
      return <ArtifactContent artifact={readArtifact({ ...block.artifact })} isGrowing={isComing} />;
    case "tool":
      return <ToolRow block={block} />;
    case "reply":
      return <Fields fields={block.fields} />;
    case "link":
      return (
        <a href={block.url} target="_blank" rel="noopener noreferrer" className="link truncate text-sm">
          {block.title}
        </a>
      );
  }
}

function Reasoning({ text, isOpen }: { text: string; isOpen: boolean }) {
  return (
    <details open={isOpen} className="group/why text-sm text-faint">
      <summary className="inline-flex list-none items-center gap-1.5 rounded hover:text-soft">
        <Brain className="size-3.5" aria-hidden />
        {isOpen ? "Thinking" : "Thoughts"}
      </summary>
      <div className="mt-2 border-l border-line pl-3 text-soft">
        <Markdown text={text} />
      </div>
    </details>
  );
}

function ToolRow({ block }: { block: Block & { kind: "tool" } }) {
  return (
    <div className="text-sm text-soft">
      <div className="flex items-center gap-2">
        {block.state === "running" && <LoaderCircle className="size-3.5 shrink-0 animate-spin text-blue motion-reduce:animate-none" aria-label="Under way" />}
        {block.state === "done" && <Check className="size-3.5 shrink-0 text-green" aria-label="Done" />}
        {block.state === "failed" && <CircleX className="size-3.5 shrink-0 text-red" aria-label="Failed" />}
        <span className="min-w-0 truncate">{block.label}</span>
      </div>
      {block.lines.length > 0 && (
        <ol className="mt-1 ml-[7px] list-decimal border-l border-line pl-8 text-xs text-faint">
          {block.lines.map((line, index) => (
            <li key={index} className="py-0.5">
              {line}
            </li>
          ))}
        </ol>
      )}
      {block.error && <p className="mt-1 pl-5 text-xs text-red">{block.error}</p>}
    </div>
  );
}

/** What came of a task that was taken on, once it is done. */
function TaskResult({ data }: { data: TaskData }) {
  const chip = chipOf(data, useTaskRow(data.taskId));
  const view = useTaskView(data.taskId, chip.status === "completed").data;
  if (chip.status !== "completed" || !view) return null;
  return artifactsOf(view.task).map((artifact, index) => <ArtifactContent key={artifact.id || index} artifact={artifact} isGrowing={false} />);
}

/** An artifact in a conversation: a picture as such, data folded up, the rest as the canvas shows it. */
export function ArtifactContent({ artifact: read, isGrowing }: { artifact: Artifact; isGrowing: boolean }) {
  const only = read.parts.length === 1 ? read.parts[0] : undefined;
  if (only && only.text === undefined && only.url === undefined) {
    return (
      <details className="group/data overflow-hidden rounded-md border border-line">
        <summary className="flex h-9 list-none items-center gap-2 px-3 text-sm hover:bg-hover focus-visible:outline-offset-[-2px]">
          <ChevronRight className="size-3.5 shrink-0 text-faint transition-transform duration-[120ms] group-open/data:rotate-90" aria-hidden />
          <Braces className="size-3.5 shrink-0 text-faint" aria-hidden />
          <span className="min-w-0 truncate font-medium">{read.name || "Result"}</span>
          {read.description && <span className="min-w-0 truncate text-xs text-faint">{read.description}</span>}
        </summary>
        <JsonView value={only.data ?? null} className="rounded-none border-0 border-t" />
      </details>
    );
  }
  if (only?.url?.startsWith("/api/") && previewOf(only.mediaType ?? "") === "image") {
    return (
      <figure className="flex flex-col gap-1.5">
        <img src={apiUrl(only.url)} alt={read.description || read.name || "Picture"} className="max-h-[420px] max-w-full self-start rounded-md border border-line object-contain" />
        <figcaption className="flex items-center gap-2 text-xs text-faint">
          <span className="truncate">{read.description || read.name}</span>
          <a href={apiUrl(only.url)} download={only.filename ?? read.name} className="inline-flex items-center gap-1 rounded hover:text-soft">
            <Download className="size-3" aria-hidden />
            Download
          </a>
        </figcaption>
      </figure>
    );
  }
  if (only?.text !== undefined && !read.name) return <TextView text={only.text} mediaType={only.mediaType} />;
  return <ArtifactView artifact={read} isGrowing={isGrowing} />;
}

export function FileBlock({ block }: { block: Block & { kind: "file" } }) {
  const isOurs = block.url.startsWith("/api/");
  // What one has sent comes back as data; foreign addresses are never loaded by the page.
  const isShown = previewOf(block.mediaType) === "image" && (isOurs || block.url.startsWith("data:image/"));
  const address = isOurs ? apiUrl(block.url) : block.url;
  if (isShown) return <img src={address} alt={block.name} loading="lazy" className="max-h-64 max-w-full rounded-md border border-line object-contain" />;
  return (
    <a
      href={/^(https?:|data:|\/api\/)/i.test(block.url) ? address : undefined}
      {...(isOurs || block.url.startsWith("data:") ? { download: block.name } : { target: "_blank", rel: "noopener noreferrer" })}
      className="inline-flex max-w-full items-center gap-2 self-start rounded-md border border-line px-2.5 py-1.5 text-sm hover:bg-hover"
    >
      <FileText className="size-4 shrink-0 text-faint" aria-hidden />
      <span className="truncate">{block.name}</span>
      <Download className="size-3.5 shrink-0 text-faint" aria-label="Download" />
    </a>
  );
}

export function Fields({ fields }: { fields: readonly [string, string][] }) {
  return (
    <dl className="grid grid-cols-[auto_1fr] gap-x-3 text-sm">
      {fields.map(([name, value]) => (
        <div key={name} className="contents">
          <dt className="text-faint capitalize">{name}</dt>
          <dd className="min-w-0 break-words">{value}</dd>
        </div>
      ))}
    </dl>
  );
}
