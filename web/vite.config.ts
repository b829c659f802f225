import tailwindcss from "@tailwindcss/vite";
import react from "@vitejs/plugin-react";
import { defineConfig } from "vite";

// The server serves the built files under /console/ from inside the Python package, so the build goes there. It may be
// mounted below a prefix, so files refer to each other relatively. Names carry only places and content hashes: the same
// sources give the same bytes on every machine.
/** Pages are all called "page": their chunks are named after their folders. */
function chunkName(module: string | null | undefined): string | undefined {
  const found = /features\/(\w+)\/(\w+)\.tsx$/.exec(module ?? "");
  return found ? `${found[1]}-${found[2]}` : undefined;
}

export default defineConfig(({ command }) => ({
  base: command === "build" ? "./" : "/console/",
  plugins: [react(), tailwindcss()],
  resolve: { alias: { "@": new URL("./src", import.meta.url).pathname } },
  worker: { format: "es" },
  build: {
    outDir: "../src/accord/_web",
    emptyOutDir: true,
    target: "es2023",
    reportCompressedSize: true,
    // A data: URL would need an exception in the content security policy.
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    // One style sheet: a second one that could not be fetched would not be asked for again with its page.
    cssCodeSplit: false,
    rolldownOptions: { output: { chunkFileNames: (chunk) => `assets/${chunkName(chunk.facadeModuleId) ?? chunk.name}-[hash].js` } },
  },
  server: { proxy: { "/api": "http://localhost:8000" } },
}));
