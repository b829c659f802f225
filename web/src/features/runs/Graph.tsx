import "@xyflow/react/dist/base.css";
import "./graph.css";
import { Background, BackgroundVariant, Controls, Handle, Position, ReactFlow, ReactFlowProvider, useReactFlow, useStore, type Edge as FlowEdge, type Node, type NodeProps } from "@xyflow/react";
import { memo, useEffect, useMemo } from "react";
import type { StepView } from "@/api/types";
import { useTheme } from "@/app/theme";
import { cx, Duration, TONE_TEXT } from "@/ui";
import { firing, fitting, layoutsOf, NODE, shapeOf, topOf, zoomIn, type Direction, type Edge, type Firing, type Spot } from "./graph";
import { StepMark, stepLook, TypeIcon, typeWord } from "./look";

interface StepData extends Record<string, unknown> {
  step: StepView;
  /** How many items of a map are done, in words; empty for other steps. */
  items: string;
  selected: boolean;
  direction: Direction;
}
type StepNode = Node<StepData, "step">;

/** How many items of each map are done. */
function itemsOf(steps: readonly StepView[]): ReadonlyMap<string, string> {
  const counts = new Map<string, { done: number; all: number }>();
  for (const step of steps) {
    if (step.parent === null) continue;
    const { done, all } = counts.get(step.parent) ?? { done: 0, all: 0 };
    counts.set(step.parent, { done: done + (step.status === "completed" ? 1 : 0), all: all + 1 });
  }
  return new Map([...counts].map(([name, { done, all }]) => [name, `${done}/${all} items`]));
}

const StepCard = memo(function StepCard({ data }: NodeProps<StepNode>) {
  const { step, items, selected, direction } = data;
  const look = stepLook(step);
  const [into, out] = direction === "LR" ? [Position.Left, Position.Right] : [Position.Top, Position.Bottom];
  const isQuiet = step.status === "pending" || step.status === "skipped";
  return (
    <div
      data-step={step.name}
      data-status={step.status}
      style={NODE}
      className={cx(
        "flex flex-col justify-center gap-0.5 rounded-md border bg-raised px-3 text-left transition-[border-color,box-shadow] duration-[120ms]",
        step.type === "barrier" && "border-dashed",
        selected ? "border-accent shadow-[0_0_0_1px_var(--accent)]" : step.status === "failed" ? "border-red-line" : look.tone === "amber" ? "border-amber-line" : "border-line-strong",
      )}
    >
      <Handle type="target" position={into} isConnectable={false} />
      <span className="flex min-w-0 items-center gap-1.5">
        <StepMark step={step} />
        <span className={cx("min-w-0 flex-1 truncate text-sm font-medium", isQuiet && "text-soft", step.status === "skipped" && "line-through decoration-grey/60")} title={step.name}>
          {step.name}
        </span>
        {step.attempts > 1 && (
          <span className="shrink-0 rounded bg-amber-tint px-1 text-xs text-amber" title={`${step.attempts} attempts`}>
            ×{step.attempts}
          </span>
        )}
      </span>
      <span className="flex min-w-0 items-center gap-1.5 pl-[22px] text-xs text-faint">
        <TypeIcon type={step.type} className="size-3" />
        <span className="min-w-0 flex-1 truncate">{items || (step.agent ?? typeWord(step.type))}</span>
        {step.isReused && <span className="shrink-0">done before</span>}
        {step.begin !== null && !step.isReused && <Duration start={step.begin} end={step.end} className={cx("shrink-0", look.tone === "blue" && TONE_TEXT.blue)} />}
      </span>
      <Handle type="source" position={out} isConnectable={false} />
    </div>
  );
});

const NODE_TYPES = { step: StepCard };

interface GraphProps {
  steps: readonly StepView[];
  selected: string | null;
  onSelect: (name: string) => void;
}

/** The steps of a run as a graph. Where they stand depends on the plan alone, so nothing moves while it goes on. */
export default function Graph({ steps, selected, onSelect }: GraphProps) {
  return (
    <ReactFlowProvider>
      <Drawn steps={steps} selected={selected} onSelect={onSelect} />
    </ReactFlowProvider>
  );
}

function Drawn({ steps, selected, onSelect }: GraphProps) {
  const width = useStore((state) => state.width);
  const height = useStore((state) => state.height);
  const theme = useTheme();
  const shape = useMemo(() => shapeOf(steps), [steps]);
  // Of the shape, not of the steps: their statuses change all the time, and are no reason to lay out anew.
  const layouts = useMemo(() => layoutsOf(shape), [shape]);
  const room = useMemo(() => ({ width: width || 800, height: height || 600 }), [width, height]);
  const { direction, spots } = useMemo(() => fitting(layouts, room), [layouts, room]);
  const nodes = useMemo(() => {
    const items = itemsOf(steps);
    return topOf(steps).map((step) => nodeFor(step, items.get(step.name) ?? "", step.name === selected, direction, spots.get(step.name)));
  }, [steps, selected, direction, spots]);
  const edges = useMemo(() => {
    const byName = new Map(steps.map((step) => [step.name, step]));
    return layouts.edges.map((edge) => edgeFor(edge, firing(byName.get(edge.from), byName.get(edge.to))));
  }, [layouts, steps]);
  return (
    <div className="h-full min-h-0 w-full">
      <ReactFlow
        nodes={nodes}
        edges={edges}
        nodeTypes={NODE_TYPES}
        colorMode={theme}
        fitView
        fitViewOptions={FIT}
        minZoom={0.15}
        maxZoom={1.5}
        nodesDraggable={false}
        nodesConnectable={false}
        onlyRenderVisibleElements={nodes.length > 200}
        onNodeClick={(_, node) => onSelect(node.id)}
        onNodesChange={(changes) => {
          // Enter on a focused node selects it; everything else about nodes is ours.
          const chosen = changes.find((change) => change.type === "select" && change.selected);
          if (chosen && chosen.type === "select") onSelect(chosen.id);
        }}
        preventScrolling={false}
        zoomOnScroll={false}
        aria-label="Steps of the run"
      >
        <Background variant={BackgroundVariant.Dots} gap={20} size={1} />
        <Controls showInteractive={false} position="bottom-left" />
        <InView key={`${width} ${height} ${shape}`} selected={selected} isLarge={zoomIn(spots, room) < READABLE} />
      </ReactFlow>
    </div>
  );
}

const ORIGIN = { x: 0, y: 0 };

/**
 * React Flow and the cards render again for another object only, so a step that did not change keeps its node. The
 * query keeps the object of such a step (structural sharing).
 */
const NODES = new WeakMap<StepView, StepNode>();

function nodeFor(step: StepView, items: string, selected: boolean, direction: Direction, spot: Spot | undefined): StepNode {
  const position = spot ?? ORIGIN;
  const known = NODES.get(step);
  if (known && known.data.items === items && known.selected === selected && known.data.direction === direction && known.position === position) return known;
  const node: StepNode = {
    id: step.name,
    type: "step",
    position,
    width: NODE.width,
    height: NODE.height,
    selected,
    ariaLabel: `${step.name}, ${stepLook(step).word}`,
    data: { step, items, selected, direction },
  };
  NODES.set(step, node);
  return node;
}

const EDGES = new WeakMap<Edge, FlowEdge>();

function edgeFor(edge: Edge, fired: Firing): FlowEdge {
  const className = `edge-${fired}`;
  const known = EDGES.get(edge);
  if (known?.className === className) return known;
  const made: FlowEdge = { id: edge.id, source: edge.from, target: edge.to, className, focusable: false, selectable: false };
  EDGES.set(edge, made);
  return made;
}

const FIT = { padding: 0.08, maxZoom: 1 };
/** Smaller than this nobody can read; then only the surroundings of the selected step are shown. */
const READABLE = 0.55;
const NEAR = 0.8;
const MOTION = { duration: 120 };

/** Shows the whole graph, or what is selected in a large one; mounted anew when the room for it changes. */
function InView({ selected, isLarge }: { selected: string | null; isLarge: boolean }) {
  const flow = useReactFlow();
  const target = isLarge ? selected : null;
  useEffect(() => {
    // Nodes are measured first.
    const timer = setTimeout(() => {
      const node = target === null ? undefined : flow.getNode(target);
      if (node) void flow.setCenter(node.position.x + NODE.width / 2, node.position.y + NODE.height / 2, { zoom: NEAR, ...MOTION });
      else void flow.fitView(FIT);
    }, 50);
    return () => clearTimeout(timer);
  }, [flow, target]);
  return null;
}
