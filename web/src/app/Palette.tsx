import { useNavigate } from "@tanstack/react-router";
import { Command } from "cmdk";
import { ArrowRight, Hash, Zap } from "lucide-react";
import { useState, type ReactNode } from "react";
import { usePaletteActions } from "./actions";
import { GLOBAL_GROUP } from "./globalActions";
import { PLACES } from "./places";

const ITEM = "flex h-9 cursor-pointer items-center gap-2.5 rounded-md px-2.5 text-sm data-[selected=true]:bg-hover [&>svg]:size-4 [&>svg]:text-faint";
const GROUP = "[&_[cmdk-group-heading]]:px-2.5 [&_[cmdk-group-heading]]:pt-2 [&_[cmdk-group-heading]]:pb-1 [&_[cmdk-group-heading]]:text-xs [&_[cmdk-group-heading]]:text-faint";

/** Ids are long and have no spaces; a word that somebody types is neither. */
const looksLikeId = (text: string) => /^\S{8,}$/.test(text) && /[\d-]/.test(text);

/**
 * Ctrl-K: go somewhere, find something by its id, or do what the page offers. On our own dialog: the one that comes with the
 * library injects a style element, which the content security policy forbids.
 */
export default function Palette({ onClose }: { onClose: () => void }) {
  const navigate = useNavigate();
  const actions = usePaletteActions();
  const [text, setText] = useState("");
  const id = text.trim();

  function item(key: string, label: string, icon: ReactNode, run: () => void, keywords?: string) {
    return (
      <Command.Item
        key={key}
        value={`${label} ${key}`}
        keywords={keywords ? [keywords] : undefined}
        className={ITEM}
        onSelect={() => {
          onClose();
          run();
        }}
      >
        {icon}
        <span className="truncate">{label}</span>
      </Command.Item>
    );
  }

  function offered(group: string) {
    return (
      <Command.Group key={group} heading={group} className={GROUP}>
        {actions.filter((action) => action.group === group).map((action) => item(action.id, action.label, <Zap />, action.run, action.keywords))}
      </Command.Group>
    );
  }

  const groups = [...new Set(actions.map((action) => action.group))];
  return (
    // A click beside it closes it, as Escape does.
    // oxlint-disable-next-line jsx-a11y/no-noninteractive-element-interactions, jsx-a11y/click-events-have-key-events
    <dialog
      ref={(element) => {
        if (!element || element.open) return;
        element.showModal();
        element.querySelector("input")?.focus();
      }}
      aria-label="Find or do"
      onClose={onClose}
      onClick={(event) => event.target === event.currentTarget && onClose()}
      className="mx-auto mt-[12vh] w-[560px] max-w-[calc(100vw-32px)] animate-enter overflow-hidden rounded-lg bg-raised p-0 shadow-float"
    >
      <Command label="Find or do">
      <Command.Input value={text} onValueChange={setText} placeholder="Go to, find by id, or do" className="h-12 w-full border-b border-line bg-transparent px-4 text-base outline-none focus-visible:outline-none" />
      <Command.List className="max-h-[50vh] overflow-y-auto p-2">
        <Command.Empty className="px-2.5 py-6 text-center text-sm text-faint">Nothing by that name</Command.Empty>
        {looksLikeId(id) && (
          <Command.Group heading="Find by id" className={GROUP} forceMount>
            {item(`task ${id}`, `Open task ${id}`, <Hash />, () => void navigate({ to: "/tasks/$taskId", params: { taskId: id } }))}
            {item(`run ${id}`, `Open run ${id}`, <Hash />, () => void navigate({ to: "/runs/$runId", params: { runId: id } }))}
          </Command.Group>
        )}
        {groups.filter((group) => group !== GLOBAL_GROUP).map(offered)}
        <Command.Group heading="Go to" className={GROUP}>
          {PLACES.map((place) => item(place.to, place.label, <ArrowRight />, () => void navigate({ to: place.to })))}
        </Command.Group>
        {offered(GLOBAL_GROUP)}
      </Command.List>
      </Command>
    </dialog>
  );
}
