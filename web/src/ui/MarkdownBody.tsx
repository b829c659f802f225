import ReactMarkdown, { defaultUrlTransform, type Components } from "react-markdown";
import remarkGfm from "remark-gfm";

/** A foreign image would tell its server who reads what; only our own and embedded ones are shown. */
function isSafeImage(source: string): boolean {
  if (/^data:image\/(png|jpeg|gif|webp|avif);/i.test(source)) return true;
  try {
    return new URL(source, window.location.href).origin === window.location.origin;
  } catch {
    return false;
  }
}

const COMPONENTS: Components = {
  a: ({ href, children }) => (
    <a href={href} target="_blank" rel="noopener noreferrer">
      {children}
    </a>
  ),
  img: ({ src, alt }) =>
    typeof src === "string" && isSafeImage(src) ? <img src={src} alt={alt ?? ""} /> : <span className="text-faint">[image not loaded: {alt || "no description"}]</span>,
};

function transformUrl(url: string, key: string): string {
  return key === "src" && url.startsWith("data:image/") ? url : defaultUrlTransform(url);
}

const PLUGINS = [remarkGfm];

export default function MarkdownBody({ text }: { text: string }) {
  return (
    <div className="prose">
      <ReactMarkdown remarkPlugins={PLUGINS} components={COMPONENTS} urlTransform={transformUrl}>
        {text}
      </ReactMarkdown>
    </div>
  );
}
