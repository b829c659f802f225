import "@xyflow/react/dist/base.css";
import "./graph.css";
import { Background, BackgroundVariant, Controls, Handle, Position, ReactFlow, ReactFlowProvider, useReactFlow, useStore, type Edge as FlowEdge, type Node, type NodeProps } from "@xyflow/react";
import { memo, useEffect, useMemo } from "react";
import type { StepView } from "@/api/types";
import { useTheme } from "@/app/theme";
import { cx, Duration, TONE_TEXT } from "@/ui";
import { edgesOf, firing, NODE, placedIn, plannedIn, shapeOf, topOf, zoomIn, type Direction } from "./graph";
import { StepMark, stepLook, TypeIcon, typeWord } from "./look";

interface StepData extends Record<string, unknown> {
  step: StepView;
  items: StepView[];
  selected: boolean;
  direction: Direction;
}
type StepNode = Node<StepData, "step">;

function itemsWord(items: readonly StepView[]): string {
  const done = items.filter((item) => item.status === "completed").length;
  return `${done}/${items.length} items`;
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
        <span className="min-w-0 flex-1 truncate">{items.length > 0 ? itemsWord(items) : (step.agent ?? typeWord(step.type))}</span>
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
  const shape = shapeOf(steps);
  // Of the shape, not of the steps: their statuses change all the time, and are no reason to lay out anew.
  const room = useMemo(() => ({ width: width || 800, height: height || 600 }), [width, height]);
  const { direction, spots } = useMemo(() => placedIn(plannedIn(shape), room), [shape, room]);
  const byName = new Map(steps.map((step) => [step.name, step]));
  const items = new Map<string, StepView[]>();
  for (const step of steps) {
    if (step.parent === null) continue;
    const known = items.get(step.parent);
    if (known) known.push(step);
    else items.set(step.parent, [step]);
  }
  const nodes: StepNode[] = topOf(steps).map((step) => ({
    id: step.name,
    type: "step",
    position: spots.get(step.name) ?? { x: 0, y: 0 },
    width: NODE.width,
    height: NODE.height,
    selected: step.name === selected,
    ariaLabel: `${step.name}, ${stepLook(step).word}`,
    data: { step, items: items.get(step.name) ?? [], selected: step.name === selected, direction },
  }));
  const edges: FlowEdge[] = edgesOf(steps).map((edge) => {
    const fired = firing(byName.get(edge.from), byName.get(edge.to));
    return { id: edge.id, source: edge.from, target: edge.to, className: `edge-${fired}`, focusable: false, selectable: false };
  });
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
