import { Check, Minus } from "lucide-react";
import type { ReactNode } from "react";
import { cx, Tag } from "@/ui";

type Thing = Record<string, unknown>;
const thing = (value: unknown): Thing => (typeof value === "object" && value !== null && !Array.isArray(value) ? (value as Thing) : {});
const texts = (value: unknown): string[] => (Array.isArray(value) ? value.filter((one) => typeof one === "string") : []);

/** What a card says, for people; the JSON is beside it. */
export function CardFacts({ card }: { card: Thing }) {
  const capabilities = thing(card.capabilities);
  const provider = thing(card.provider);
  const schemes = Object.keys(thing(card.securitySchemes));
  const extensions = (Array.isArray(capabilities.extensions) ? capabilities.extensions : []).map(thing);
  return (
    <dl className="grid grid-cols-[88px_1fr] gap-x-4 gap-y-2 text-sm">
      <Row name="Offers">
        <Offer is={capabilities.streaming === true}>streams</Offer>
        <Offer is={capabilities.pushNotifications === true}>webhooks</Offer>
        <Offer is={capabilities.extendedAgentCard === true}>an extended card</Offer>
      </Row>
      <Row name="Takes">
        <Words of={texts(card.defaultInputModes)} />
      </Row>
      <Row name="Gives">
        <Words of={texts(card.defaultOutputModes)} />
      </Row>
      <Row name="Sign-in">{schemes.length > 0 ? <Words of={schemes} /> : <span className="text-faint">none</span>}</Row>
      {typeof provider.organization === "string" && <Row name="Provider">{provider.organization}</Row>}
      {extensions.length > 0 && (
        <Row name="Extensions">
          <ul className="flex min-w-0 flex-col gap-1">
            {extensions.map((extension) => (
              <li key={String(extension.uri)} className="min-w-0">
                {String(extension.description ?? extension.uri)}
                {extension.required === true && <span className="text-faint"> (required)</span>}
              </li>
            ))}
          </ul>
        </Row>
      )}
    </dl>
  );
}

function Row({ name, children }: { name: string; children: ReactNode }) {
  return (
    <>
      <dt className="text-faint">{name}</dt>
      <dd className="flex min-w-0 flex-wrap items-center gap-x-4 gap-y-1">{children}</dd>
    </>
  );
}

function Offer({ is, children }: { is: boolean; children: string }) {
  const Icon = is ? Check : Minus;
  return (
    <span className={cx("inline-flex items-center gap-1", !is && "text-faint")}>
      <Icon className={cx("size-3.5", is && "text-green")} aria-hidden />
      {is ? children : `no ${children.replace(/^an /, "")}`}
    </span>
  );
}

function Words({ of }: { of: readonly string[] }) {
  return (
    <span className="flex flex-wrap gap-1">
      {of.map((word) => (
        <Tag key={word}>{word}</Tag>
      ))}
    </span>
  );
}
