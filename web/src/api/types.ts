import type { components } from "./schema.gen";

/*
 * The view models of the API by their names. They are written down once, in src/accord/console: the OpenAPI
 * document is made from there (`npm run describe`), and schema.gen.ts from the document (`npm run types`).
 */
type Schemas = components["schemas"];

export type State = Schemas["TaskRow"]["status"];
export type Waiting = NonNullable<Schemas["TaskRow"]["waiting"]>;
export type Action = Schemas["TaskView"]["actions"][number];
export type TaskRow = Schemas["TaskRow"];
export type TaskPage = Schemas["TaskRowPage"];
export type TaskView = Schemas["TaskView"];
export type LogEvent = Schemas["LogEvent"];
export type LogPage = Schemas["LogPage"];
export type Segment = Schemas["Segment"];
export type Lane = Schemas["Lane"];
export type Timeline = Schemas["Timeline"];
export type Question = Schemas["Question"];
export type Inbox = Schemas["Inbox"];
export type StepStatus = Schemas["StepView"]["status"];
export type CheckView = Schemas["CheckView"];
export type StepView = Schemas["StepView"];
export type TryView = Schemas["TryView"];
export type StepDetail = Schemas["StepDetail"];
export type WaitView = Schemas["WaitView"];
export type RunRow = Schemas["RunRow"];
export type RunPage = Schemas["RunPage"];
export type RunAction = Schemas["RunView"]["actions"][number];
export type RunView = Schemas["RunView"];
export type RerunView = Schemas["RerunView"];
export type WorkflowView = Schemas["WorkflowView"];
export type Finding = Schemas["FindingView"];
export type SkillView = Schemas["SkillView"];
export type HealthView = Schemas["HealthView"];
export type AgentRow = Schemas["AgentRow"];
export type AgentView = Schemas["AgentView"];
export type Template = Schemas["Template"];
export type Model = Schemas["Model"];
export type DeliveryRow = Schemas["DeliveryRow"];
export type DeliveryPage = Schemas["DeliveryPage"];
export type Exchange = Schemas["HttpMessage"];
export type AttemptView = Schemas["AttemptView"];
export type DeliveryView = Schemas["DeliveryView"];
export type Way = Schemas["SignInOption"];
export type SessionView = Schemas["SessionView"];
export type StorageUse = Schemas["StorageUse"];
export type UsageView = Schemas["UsageView"];
export type AuditRow = Schemas["AuditRow"];
export type AuditPage = Schemas["AuditPage"];
export type ChatRow = Schemas["ChatRow"];
export type ChatPage = Schemas["ChatPage"];
export type ChatView = Schemas["ChatView"];
export type AgentList = Schemas["AgentList"];
