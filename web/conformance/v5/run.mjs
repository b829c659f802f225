import * as ai from "ai";
import { run } from "../cases.mjs";

await run(ai);
