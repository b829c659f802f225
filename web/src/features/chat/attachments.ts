import { formatBytes } from "@/ui";

/** Files that are sent with a message, as data: addresses. The server reads bodies of 16 MiB, and base64 adds a third. */
export const MAX_BYTES = 10 * 1024 * 1024;
export const MAX_FILES = 10;

export interface Attachment {
  id: string;
  name: string;
  mediaType: string;
  size: number;
  url: string;
}

/** Which of some files can still be taken, and why not the others. */
export function chosen(files: readonly Pick<File, "name" | "size">[], present: readonly Pick<Attachment, "size">[]): { taken: number[]; refusals: string[] } {
  let bytes = present.reduce((sum, one) => sum + one.size, 0);
  let count = present.length;
  const taken: number[] = [];
  const refusals: string[] = [];
  files.forEach((file, index) => {
    if (count >= MAX_FILES) refusals.push(`${file.name}: at most ${MAX_FILES} files`);
    else if (bytes + file.size > MAX_BYTES) refusals.push(`${file.name}: all files together may have ${formatBytes(MAX_BYTES)}`);
    else {
      taken.push(index);
      bytes += file.size;
      count += 1;
    }
  });
  return { taken, refusals };
}

let last = 0;

export async function readFile(file: File): Promise<Attachment> {
  const url = await new Promise<string>((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(String(reader.result));
    reader.onerror = () => reject(reader.error ?? new Error(`${file.name} cannot be read`));
    reader.readAsDataURL(file);
  });
  last += 1;
  return { id: String(last), name: file.name || "pasted", mediaType: file.type || "application/octet-stream", size: file.size, url };
}
