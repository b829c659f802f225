import { Download, ExternalLink, File as FileIcon } from "lucide-react";
import { useQuery } from "@tanstack/react-query";
import { apiUrl, request } from "@/api/client";
import { SkeletonText } from "@/ui";
import { HtmlPreview } from "./HtmlPreview";
import { previewOf, type Preview } from "./media";
import { TextView } from "./PartView";

/** Larger texts are for an editor: they can be downloaded. */
const PREVIEW_CHARACTERS = 200_000;

/** Files that agents gave as addresses elsewhere are never fetched by this page: that would tell who reads them. */
const isOurs = (url: string) => url.startsWith("/api/");
/** Anything but the web's addresses might do something instead of leading somewhere. */
const isWeb = (url: string) => /^https?:\/\//i.test(url);

export function FilePart({ url, filename, mediaType = "application/octet-stream" }: { url: string; filename?: string; mediaType?: string }) {
  const ours = isOurs(url);
  const name = filename ?? (ours ? "file" : url);
  return (
    <div className="flex flex-col gap-2">
      {ours && <Shown preview={previewOf(mediaType)} url={url} name={name} mediaType={mediaType} />}
      <a
        href={ours ? apiUrl(url) : isWeb(url) ? url : undefined}
        {...(ours ? { download: filename ?? "" } : { target: "_blank", rel: "noopener noreferrer" })}
        className="inline-flex max-w-full items-center gap-2 self-start rounded-md border border-line px-2.5 py-1.5 text-sm hover:bg-hover"
      >
        <FileIcon className="size-4 shrink-0 text-faint" aria-hidden />
        <span className="truncate">{name}</span>
        <span className="text-xs whitespace-nowrap text-faint">{mediaType}</span>
        {ours ? <Download className="size-3.5 shrink-0 text-faint" aria-label="Download" /> : <ExternalLink className="size-3.5 shrink-0 text-faint" aria-label="Opens elsewhere" />}
      </a>
    </div>
  );
}

function Shown({ preview, url, name, mediaType }: { preview: Preview; url: string; name: string; mediaType: string }) {
  const address = apiUrl(url);
  switch (preview) {
    case "image":
      return <img src={address} alt={name} loading="lazy" className="max-h-96 max-w-full self-start rounded border border-line object-contain" />;
    case "audio":
      // What an agent made has no captions that we could offer.
      return <audio controls preload="none" src={address} aria-label={name} className="w-full" />;
    case "video":
      return <video controls preload="none" src={address} aria-label={name} className="max-h-96 w-full rounded" />;
    case "html":
      return <HtmlPreview src={`${address}?inline=1`} />;
    case "none":
      return null;
    default:
      return <TextFile url={url} mediaType={mediaType} />;
  }
}

function TextFile({ url, mediaType }: { url: string; mediaType: string }) {
  const text = useQuery({
    queryKey: ["file", url],
    queryFn: async ({ signal }) => (await request("GET", url, undefined, signal)).text(),
    // A file of a task does not change any more.
    staleTime: Number.POSITIVE_INFINITY,
  });
  if (text.isPending) return <SkeletonText lines={3} label="Loading the preview" />;
  if (text.isError) return <p className="text-xs text-red">The preview could not be loaded: {text.error.message}</p>;
  const isCut = text.data.length > PREVIEW_CHARACTERS;
  return (
    <>
      <TextView text={isCut ? text.data.slice(0, PREVIEW_CHARACTERS) : text.data} mediaType={mediaType} />
      {isCut && <p className="text-xs text-faint">Only the beginning is shown; the download has all of it.</p>}
    </>
  );
}
