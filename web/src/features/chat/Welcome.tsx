import { ArrowUpRight } from "lucide-react";
import type { Model } from "@/api/types";
import { EmptyState, SkeletonText } from "@/ui";
import { promptsOf } from "./prompts";

/** An empty chat: three things to say, which work with the agents that are there. */
export function Welcome({ models, onPrompt }: { models: readonly Model[] | undefined; onPrompt: (prompt: string, agent: string) => void }) {
  if (!models) return <SkeletonText lines={3} label="Loading the agents" />;
  if (models.length === 0) return <EmptyState title="There is nobody to talk to" command="accord serve my_agents.py:agent" />;
  const prompts = promptsOf(models);
  return (
    <div className="flex flex-col gap-5">
      <div>
        <h2 className="text-xl font-semibold tracking-tight">What should be done?</h2>
        <p className="mt-1 text-soft">
          {models.length === 1 ? `${models[0]?.name} is here.` : `${models.length} agents are here.`} What they do is kept: close the tab, come back, and it goes on.
        </p>
      </div>
      <ul className="flex flex-col gap-2">
        {prompts.map(({ prompt, model }) => (
          <li key={model.id}>
            <button
              type="button"
              onClick={() => onPrompt(prompt, model.id)}
              className="group flex w-full items-center gap-3 rounded-md border border-line px-4 py-3 text-left transition-colors duration-[120ms] hover:border-line-strong hover:bg-hover"
            >
              <span className="min-w-0 flex-1">
                <span className="block truncate font-medium">{prompt}</span>
                <span className="block truncate text-xs text-faint">
                  {model.name}: {model.description}
                </span>
              </span>
              <ArrowUpRight className="size-4 shrink-0 text-faint group-hover:text-accent-strong" aria-hidden />
            </button>
          </li>
        ))}
      </ul>
    </div>
  );
}
