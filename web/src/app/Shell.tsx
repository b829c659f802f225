import { Outlet } from "@tanstack/react-router";
import { useQueryClient } from "@tanstack/react-query";
import { useEffect } from "react";
import { whenUnauthorized } from "@/api/client";
import { keys } from "@/api/keys";
import { listenForCutOff } from "@/ui/cutOff";
import { listenForShortcuts } from "@/ui/shortcuts";
import { ToastHost } from "@/ui/Toast";

/** What every address has, the sign-in too: keys, notices, and an ear for sessions that end. */
export function Shell() {
  const client = useQueryClient();
  useEffect(listenForShortcuts, []);
  useEffect(listenForCutOff, []);
  useEffect(() => whenUnauthorized(() => void client.invalidateQueries({ queryKey: keys.session })), [client]);
  return (
    <>
      <Outlet />
      <ToastHost />
    </>
  );
}
