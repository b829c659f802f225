import type { Artifact } from "../a2a";
import { PartView } from "./PartView";

/** What the task made; one that is still being made grows in place. */
export function Artifacts({ artifacts, isGrowing }: { artifacts: readonly Artifact[]; isGrowing: boolean }) {
  return (
    <div className="flex flex-col gap-3">
      {artifacts.map((artifact, index) => (
        <ArtifactView key={artifact.id || index} artifact={artifact} isGrowing={isGrowing && index === artifacts.length - 1} />
      ))}
    </div>
  );
}

export function ArtifactView({ artifact, isGrowing }: { artifact: Artifact; isGrowing?: boolean }) {
  return (
    <article className="overflow-hidden rounded-md border border-line">
      <header className="flex min-h-8 items-center gap-2 border-b border-line bg-sunken px-3 py-1 text-xs">
        <span className="min-w-0 truncate font-medium">{artifact.name || artifact.id}</span>
        {artifact.description && <span className="min-w-0 truncate text-faint">{artifact.description}</span>}
        {isGrowing && <span className="ml-auto size-2 shrink-0 animate-pulse-slow rounded-full bg-blue" role="img" aria-label="Still growing" />}
      </header>
      <div className="flex flex-col gap-3 p-3">
        {artifact.parts.map((part, at) => (
          <PartView key={at} part={part} />
        ))}
      </div>
    </article>
  );
}
