// Prints the partitions of the keys that it reads, as JSON; for tests/test_typescript_client.py.
import { readFileSync } from "node:fs";

const { partitionOf } = await import(process.env.QBULL_CLIENT);
console.log(JSON.stringify(JSON.parse(readFileSync(0, "utf8")).map(([key, partitions]) => partitionOf(key, partitions))));
