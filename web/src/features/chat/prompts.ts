import type { Model } from "@/api/types";

export interface Prompt {
  prompt: string;
  model: Model;
}

const COUNT = 3;

/** What one may say first: an example of each agent that has some, the default one last because it is asked anyway. */
export function promptsOf(models: readonly Model[]): Prompt[] {
  const ordered = models.toSorted((left, right) => Number(left.isDefault) - Number(right.isDefault));
  const found = ordered.flatMap((model) => (model.examples[0] ? [{ prompt: model.examples[0], model }] : []));
  if (found.length >= COUNT) return found.slice(0, COUNT);
  const one = models.find((model) => model.isDefault) ?? models[0];
  const more = found.length === 0 && one ? [{ prompt: "Hello, what can you do?", model: one }] : [];
  return [...found, ...more];
}
