import { QueryClient, QueryClientProvider } from "@tanstack/react-query";
import { render, screen } from "@testing-library/react";
import { expect, it } from "vitest";
import { agentRow } from "@/testing/rows";
import { Tour } from "./Tour";

it("says what it sends to whom, and nothing that only some agents do", () => {
  render(
    <QueryClientProvider client={new QueryClient()}>
      <Tour tour={{ agent: agentRow("mine"), text: "Hello" }} />
    </QueryClientProvider>,
  );
  expect(screen.getByRole("region", { name: "Try mine" }).textContent).toBe("Try mineSends Hello to mine. Its progress, its questions and its result appear here.Send a task");
});
