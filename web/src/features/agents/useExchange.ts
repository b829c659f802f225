import { useEffect, useRef, useState } from "react";
import { request } from "@/api/client";
import { after, EventReader, NOTHING, type Happened } from "./happened";

export interface Wish {
  agent?: string;
  url?: string;
  method: string;
  path?: string;
  headers: Record<string, string>;
  body: string | null;
}

/** Sends a request through the server and follows what comes of it; one at a time. */
export function useExchange() {
  const [happened, setHappened] = useState<Happened>(NOTHING);
  const [problem, setProblem] = useState<string | null>(null);
  const [isBusy, setBusy] = useState(false);
  const going = useRef<AbortController | null>(null);

  useEffect(() => () => going.current?.abort(), []);

  async function send(wish: Wish): Promise<Happened> {
    going.current?.abort();
    const controller = new AbortController();
    going.current = controller;
    setHappened(NOTHING);
    setProblem(null);
    setBusy(true);
    let known = NOTHING;
    try {
      const response = await request("POST", "/api/inspect", wish, controller.signal);
      const reader = new EventReader();
      const text = response.body?.pipeThrough(new TextDecoderStream()).getReader();
      for (let piece = await text?.read(); piece && !piece.done; piece = await text?.read()) {
        for (const told of reader.feed(piece.value)) known = after(known, told);
        setHappened(known);
      }
      if (!known.end) setProblem("The connection to this server broke off before the answer was whole");
    } catch (error) {
      if (!controller.signal.aborted) setProblem(error instanceof Error ? error.message : String(error));
    } finally {
      if (going.current === controller) setBusy(false);
    }
    return known;
  }

  return { happened, problem, isBusy, send, stop: () => going.current?.abort() };
}
