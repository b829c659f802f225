import { createRootRoute, createRoute, createRouter, lazyRouteComponent, type RouteComponent } from "@tanstack/react-router";
import { chunk } from "./api/chunks";
import { MOUNT } from "./api/client";
import { Frame } from "./app/Frame";
import { readSearch, writeSearch } from "./app/search";
import { Shell } from "./app/Shell";
import { agentsSearch, inspectSearch } from "./features/agents/search";
import { chatSearch } from "./features/chat/search";
import { deliveriesSearch } from "./features/deliveries/search";
import { inboxSearch } from "./features/inbox/search";
import { registrySearch } from "./features/registry/search";
import { runsSearch } from "./features/runs/search";
import { signinSearch } from "./features/signin/search";
import { tasksSearch } from "./features/tasks/search";
import { ErrorState, EmptyState, SkeletonPage } from "./ui";

/*
 * Every page is loaded when it is first looked at. A list and what is selected in it are two routes: the page renders
 * <Outlet /> where the selection goes, so that a selection has an address and the list stays where it is.
 */
const lazyPage = (load: () => Promise<{ default: RouteComponent }>): RouteComponent => lazyRouteComponent(() => chunk(load));

const top = createRootRoute({ component: Shell });

const signin = createRoute({ getParentRoute: () => top, path: "/signin", validateSearch: signinSearch, component: lazyPage(() => import("./features/signin/page")) });

const root = createRoute({ getParentRoute: () => top, id: "console", component: Frame });

const start = createRoute({ getParentRoute: () => root, path: "/", component: lazyPage(() => import("./features/start/page")) });

const chat = createRoute({ getParentRoute: () => root, path: "/chat", validateSearch: chatSearch, component: lazyPage(() => import("./features/chat/page")) });
const chatDetail = createRoute({ getParentRoute: () => chat, path: "$chatId", component: lazyPage(() => import("./features/chat/detail")) });

const inbox = createRoute({ getParentRoute: () => root, path: "/inbox", validateSearch: inboxSearch, component: lazyPage(() => import("./features/inbox/page")) });

const tasks = createRoute({ getParentRoute: () => root, path: "/tasks", validateSearch: tasksSearch, component: lazyPage(() => import("./features/tasks/page")) });
const taskDetail = createRoute({ getParentRoute: () => tasks, path: "$taskId", component: lazyPage(() => import("./features/tasks/detail")) });

const runs = createRoute({ getParentRoute: () => root, path: "/runs", validateSearch: runsSearch, component: lazyPage(() => import("./features/runs/page")) });
const runDetail = createRoute({ getParentRoute: () => runs, path: "$runId", component: lazyPage(() => import("./features/runs/detail")) });

const agents = createRoute({ getParentRoute: () => root, path: "/agents", validateSearch: agentsSearch, component: lazyPage(() => import("./features/agents/page")) });
const agentDetail = createRoute({ getParentRoute: () => agents, path: "$slug", component: lazyPage(() => import("./features/agents/detail")) });
const inspect = createRoute({
  getParentRoute: () => root,
  path: "/agents/$slug/inspect",
  validateSearch: inspectSearch,
  component: lazyPage(() => import("./features/agents/inspect")),
});

const deliveries = createRoute({
  getParentRoute: () => root,
  path: "/deliveries",
  validateSearch: deliveriesSearch,
  component: lazyPage(() => import("./features/deliveries/page")),
});
const deliveryDetail = createRoute({ getParentRoute: () => deliveries, path: "$taskId/$pushId", component: lazyPage(() => import("./features/deliveries/detail")) });

const registry = createRoute({ getParentRoute: () => root, path: "/registry", validateSearch: registrySearch, component: lazyPage(() => import("./features/registry/page")) });
const registryDetail = createRoute({ getParentRoute: () => registry, path: "$cardId", component: lazyPage(() => import("./features/registry/detail")) });

const pages = root.addChildren([
  start,
  chat.addChildren([chatDetail]),
  inbox,
  tasks.addChildren([taskDetail]),
  runs.addChildren([runDetail]),
  agents.addChildren([agentDetail]),
  inspect,
  deliveries.addChildren([deliveryDetail]),
  registry.addChildren([registryDetail]),
]);
const tree = top.addChildren([signin, pages]);

export const router = createRouter({
  routeTree: tree,
  basepath: `${MOUNT}/console`,
  parseSearch: readSearch,
  stringifySearch: writeSearch,
  defaultPreload: "intent",
  defaultPendingMs: 80,
  defaultPendingComponent: SkeletonPage,
  defaultErrorComponent: ({ error, reset }) => <ErrorState title="This page failed to show" error={error} safe="Only this page is affected; tasks keep running." onRetry={reset} />,
  defaultNotFoundComponent: () => <EmptyState title="There is no page at this address">Use the rail, or press Ctrl K to find something by its id.</EmptyState>,
});

declare module "@tanstack/react-router" {
  interface Register {
    router: typeof router;
  }
}
