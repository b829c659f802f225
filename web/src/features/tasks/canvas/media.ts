/** How something of a media type is shown. Pictures are drawn with <img>, in which browsers run no script, not even of an SVG. */
export type Preview = "image" | "audio" | "video" | "html" | "json" | "markdown" | "code" | "none";

const EXACT: Record<string, Preview> = {
  "text/markdown": "markdown",
  "text/x-markdown": "markdown",
  "text/plain": "markdown",
  "text/html": "html",
  "application/xhtml+xml": "html",
  "application/xml": "code",
  "application/javascript": "code",
  "application/yaml": "code",
  "application/x-yaml": "code",
  "application/toml": "code",
  "application/x-sh": "code",
  "application/sql": "code",
};

const IMAGES = new Set(["image/png", "image/jpeg", "image/gif", "image/webp", "image/avif", "image/bmp", "image/svg+xml"]);

export function previewOf(mediaType: string): Preview {
  const type = mediaType.split(";")[0]?.trim().toLowerCase() ?? "";
  const exact = EXACT[type];
  if (exact) return exact;
  if (IMAGES.has(type)) return "image";
  if (type === "application/json" || type.endsWith("+json")) return "json";
  if (type.startsWith("audio/")) return "audio";
  if (type.startsWith("video/")) return "video";
  return type.startsWith("text/") ? "code" : "none";
}
