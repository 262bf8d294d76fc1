// Checks Kubernetes objects of operators with the validators that @kubernetes-models made from their definitions.
// Input: a JSON list of objects. Output: a JSON list with the complaint about each, or null.
import { readFileSync } from "node:fs";
import * as keda from "@kubernetes-models/keda/keda.sh/v1alpha1";
import * as monitoring from "@kubernetes-models/prometheus-operator/monitoring.coreos.com/v1";

const groups = { "keda.sh/v1alpha1": keda, "monitoring.coreos.com/v1": monitoring };

function complaint(object) {
  const kind = groups[object.apiVersion]?.[object.kind];
  if (kind === undefined) return `no definition of ${object.apiVersion} ${object.kind}`;
  try {
    new kind(object).validate();
    return null;
  } catch (error) {
    return String(error.message);
  }
}

console.log(JSON.stringify(JSON.parse(readFileSync(0, "utf8")).map(complaint)));
