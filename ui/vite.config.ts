// The build: relative addresses (the page says its own base), and every file beside its gzip.
import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { gzipSync } from "node:zlib";
import { defineConfig, type Plugin } from "vite";

const out = "../src/qbull/ui";

function compressed(): Plugin {
  return {
    name: "compressed",
    apply: "build",
    closeBundle() {
      const assets = join(import.meta.dirname, out, "assets");
      for (const name of readdirSync(assets)) {
        if (/\.(js|css)$/.test(name)) {
          const path = join(assets, name);
          writeFileSync(`${path}.gz`, gzipSync(readFileSync(path), { level: 9 }));
        }
      }
    },
  };
}

export default defineConfig({
  base: "./",
  plugins: [compressed()],
  build: {
    outDir: out,
    emptyOutDir: true,
    target: "es2022",
    cssTarget: ["chrome123", "firefox121", "safari17.5"], // those that know light-dark()
    modulePreload: { polyfill: false },
    assetsInlineLimit: 0,
  },
  server: { proxy: { "/api": "http://127.0.0.1:3050" } },
});
