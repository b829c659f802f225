import { QueryClientProvider } from "@tanstack/react-query";
import { createMemoryHistory, createRootRoute, createRoute, createRouter, RouterProvider } from "@tanstack/react-router";
import { render, screen } from "@testing-library/react";
import { expect, test, vi } from "vitest";
import { newQueryClient } from "@/api/queryClient";
import DeliveryDetail from "./detail";

/** The page at the address that it has among the routes, and a server that gives one answer. */
function show(status: number, body: object) {
  vi.stubGlobal("fetch", () => Promise.resolve(Response.json(body, { status })));
  const top = createRootRoute();
  const root = createRoute({ getParentRoute: () => top, id: "console" });
  const deliveries = createRoute({ getParentRoute: () => root, path: "/deliveries" });
  const detail = createRoute({ getParentRoute: () => deliveries, path: "$taskId/$pushId", component: DeliveryDetail });
  const routeTree = top.addChildren([root.addChildren([deliveries.addChildren([detail])])]);
  const router = createRouter({ routeTree, history: createMemoryHistory({ initialEntries: ["/deliveries/t1/p1"] }) });
  render(
    <QueryClientProvider client={newQueryClient()}>
      <RouterProvider router={router as never} />
    </QueryClientProvider>,
  );
}

test("a webhook that is not there is no failure of the page", async () => {
  show(404, { detail: "There is no such webhook" });
  expect(await screen.findByRole("heading", { name: "There is no such webhook" })).toBeTruthy();
  expect(screen.queryByText("The webhook could not be loaded")).toBeNull();
});

test("one that cannot be loaded is one", async () => {
  show(403, { detail: "That is not for you" });
  expect(await screen.findByText("The webhook could not be loaded")).toBeTruthy();
  expect(screen.getByText("That is not for you")).toBeTruthy();
});
