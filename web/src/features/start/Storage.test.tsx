import { QueryClientProvider } from "@tanstack/react-query";
import { render, screen } from "@testing-library/react";
import { expect, it, vi } from "vitest";
import { newQueryClient } from "@/api/queryClient";
import type { UsageView } from "@/api/types";
import { Storage } from "./Storage";

const MB = 1024 ** 2;

/** The lines of the panel for an answer of `/api/usage`. */
async function lines(usage: UsageView): Promise<(string | null)[]> {
  vi.stubGlobal("fetch", (url: string) => Promise.resolve(Response.json(url.endsWith("/api/usage") ? usage : {})));
  const { unmount } = render(
    <QueryClientProvider client={newQueryClient()}>
      <Storage />
    </QueryClientProvider>,
  );
  await screen.findByRole("list", { name: "Storage" });
  const found = screen.getAllByRole("listitem").map((line) => line.textContent);
  unmount();
  return found;
}

it("shows a caller what it stores, and its quotas", async () => {
  expect(await lines({ owner: { tasks: 1, bytes: 512, maxTasks: null, maxBytes: null }, tenant: null, owners: null })).toEqual(["Your tasks1 task, 512 B"]);
  expect(await lines({ owner: { tasks: 1, bytes: 85 * MB, maxTasks: 2000, maxBytes: 100 * MB }, tenant: null, owners: null })).toEqual([
    "Your tasksnearly full1 of 2,000 tasks, 85 MB of 100 MB",
  ]);
});

it("shows operators the tenant and its owners, and marks a quota that is reached", async () => {
  const usage = {
    owner: { tasks: 0, bytes: 0, maxTasks: null, maxBytes: null },
    tenant: { tasks: 5, bytes: 2 * MB, maxTasks: 5, maxBytes: null },
    owners: [{ tenant: "acme", owner: "alice", tasks: 5, bytes: 2 * MB }],
  };
  expect(await lines(usage)).toEqual(["Your tasks0 tasks, 0 B", "All tasks of the tenantquota reached5 of 5 tasks, 2.0 MB", "alice5 tasks, 2.0 MB"]);
});
