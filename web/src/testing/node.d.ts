/** What tests use of Node itself. */
declare module "node:child_process" {
  export function execFileSync(file: string, args: readonly string[], options?: { encoding: "utf8" }): string;
}
