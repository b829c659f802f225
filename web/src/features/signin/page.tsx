import { useSearch } from "@tanstack/react-router";
import { KeyRound, LogIn } from "lucide-react";
import { useState, type FormEvent } from "react";
import { api, ApiError } from "@/api/client";
import { useSession } from "@/api/session";
import type { SessionView } from "@/api/types";
import { Logo } from "@/app/Logo";
import { retryLive } from "@/live/live";
import { Button, ErrorState, Field, Input, Notice, SkeletonText } from "@/ui";
import { addressOf, pageOf } from "./next";

const ERRORS = {
  denied: "The sign-in was declined there.",
  expired: "That took too long, or began in another browser. Please sign in again.",
  failed: "That did not work. The server's log says why.",
};

/** The page after signing in is loaded anew, so that nothing is left of what somebody else saw. */
function enter(next: string): void {
  retryLive();
  window.location.assign(addressOf(next));
}

export default function SigninPage() {
  const { next, error } = useSearch({ from: "/signin" });
  const session = useSession();
  const page = pageOf(next);
  return (
    <main className="flex min-h-full items-center justify-center px-4 py-12">
      <div className="flex w-full max-w-sm flex-col gap-6">
        <header className="flex flex-col gap-1">
          <Logo className="mb-3 size-8" />
          <h1 className="text-xl font-semibold tracking-tight">Sign in to Accord</h1>
          {session.data && <p className="text-sm break-words text-faint">{session.data.url}</p>}
        </header>
        {error && <Notice tone="amber">{ERRORS[error]}</Notice>}
        {session.isPending && <SkeletonText />}
        {session.isError && <ErrorState title="The server does not answer" error={session.error} onRetry={() => void session.refetch()} />}
        {session.data && <Ways session={session.data} page={page} />}
      </div>
    </main>
  );
}

function Ways({ session, page }: { session: SessionView; page: string }) {
  const links = session.ways.filter((way) => way.url !== null);
  const kinds = new Set(session.ways.map((way) => way.kind));
  if (session.signedIn) {
    return (
      <div className="flex flex-col gap-3">
        <p className="text-sm text-soft">{session.isOpen ? "This server asks nobody who they are." : `You are signed in as ${session.name}.`}</p>
        <Button kind="primary" onClick={() => enter(page)}>
          Go on
        </Button>
      </div>
    );
  }
  if (session.ways.length === 0) {
    return <Notice>This server takes only credentials that a page cannot send, such as signed requests or client certificates.</Notice>;
  }
  return (
    <div className="flex flex-col gap-6">
      {links.map((way) => (
        <Button key={way.url} kind="primary" icon={<LogIn className="size-4" aria-hidden />} onClick={() => window.location.assign(`${way.url}?next=${encodeURIComponent(page)}`)}>
          Sign in with {way.label}
        </Button>
      ))}
      {kinds.has("password") && <PasswordForm page={page} />}
      {kinds.has("api-key") && <KeyForm page={page} isOnly={kinds.size === 1} />}
    </div>
  );
}

/** Posts credentials; what went wrong is for the form to show. */
function useSignIn(page: string) {
  const [problem, setProblem] = useState<string | null>(null);
  const [busy, setBusy] = useState(false);
  async function signIn(credentials: Record<string, string>) {
    setBusy(true);
    setProblem(null);
    try {
      await api.post<SessionView>("/api/session", credentials);
      enter(page);
    } catch (refusal) {
      setProblem(refusal instanceof ApiError && refusal.status === 401 ? "That was not right." : refusal instanceof Error ? refusal.message : String(refusal));
      setBusy(false);
    }
  }
  return { problem, busy, signIn };
}

function fields(event: FormEvent<HTMLFormElement>): FormData {
  event.preventDefault();
  return new FormData(event.currentTarget);
}

const text = (form: FormData, name: string): string => String(form.get(name) ?? "");

function PasswordForm({ page }: { page: string }) {
  const { problem, busy, signIn } = useSignIn(page);
  return (
    <form
      className="flex flex-col gap-3"
      onSubmit={(event) => {
        const form = fields(event);
        void signIn({ username: text(form, "username"), password: text(form, "password") });
      }}
    >
      <Field label="Name">
        <Input name="username" autoComplete="username" required autoFocus />
      </Field>
      <Field label="Password" error={problem}>
        <Input name="password" type="password" autoComplete="current-password" required />
      </Field>
      <Button type="submit" kind="primary" busy={busy}>
        Sign in
      </Button>
    </form>
  );
}

function KeyForm({ page, isOnly }: { page: string; isOnly: boolean }) {
  const { problem, busy, signIn } = useSignIn(page);
  return (
    <form
      className="flex flex-col gap-3"
      onSubmit={(event) => {
        void signIn({ apiKey: text(fields(event), "apiKey") });
      }}
    >
      <Field label="API key" error={problem} hint="accord apikeys create --owner NAME prints one">
        <Input name="apiKey" type="password" autoComplete="off" spellCheck={false} required autoFocus={isOnly} />
      </Field>
      <Button type="submit" kind={isOnly ? "primary" : "secondary"} busy={busy} icon={<KeyRound className="size-4" aria-hidden />}>
        Sign in with a key
      </Button>
    </form>
  );
}
