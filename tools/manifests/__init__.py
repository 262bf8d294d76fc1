"""The plain files of deploy/kubernetes, rendered from the Helm chart in deploy/helm/qbull."""
