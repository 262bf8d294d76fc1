// Renders the chart as `helm template` does: Go's templates with Sprig's functions, and the few that Helm adds.
// Debian packages both, so the tests need no Helm. Usage: render CHART RELEASE NAMESPACE VALUES.yaml...
package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"text/template"

	"github.com/Masterminds/sprig"
	"gopkg.in/yaml.v3"
)

type files struct{ chart string }

func (f files) Get(name string) (string, error) {
	data, err := os.ReadFile(filepath.Join(f.chart, name))
	return string(data), err
}

func read(path string) map[string]interface{} {
	data, err := os.ReadFile(path)
	check(err)
	values := map[string]interface{}{}
	check(yaml.Unmarshal(data, &values))
	return values
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// merge puts the values of `over` into `under`, map by map. A null removes a value, as in Helm.
func merge(under, over map[string]interface{}) map[string]interface{} {
	for name, value := range over {
		deeper, isMap := value.(map[string]interface{})
		there, wasMap := under[name].(map[string]interface{})
		switch {
		case value == nil:
			delete(under, name)
		case isMap && wasMap:
			under[name] = merge(there, deeper)
		default:
			under[name] = value
		}
	}
	return under
}

func toYaml(value interface{}) (string, error) {
	var out bytes.Buffer
	encoder := yaml.NewEncoder(&out)
	encoder.SetIndent(2)
	err := encoder.Encode(value)
	return strings.TrimSuffix(out.String(), "\n"), err
}

func main() {
	chart, release, namespace := os.Args[1], os.Args[2], os.Args[3]
	values := read(filepath.Join(chart, "values.yaml"))
	for _, path := range os.Args[4:] {
		values = merge(values, read(path))
	}
	about := read(filepath.Join(chart, "Chart.yaml"))
	root := map[string]interface{}{
		"Values":  values,
		"Chart":   map[string]interface{}{"Name": about["name"], "Version": about["version"], "AppVersion": about["appVersion"]},
		"Release": map[string]interface{}{"Name": release, "Namespace": namespace, "Service": "Helm"},
		"Files":   files{chart},
	}
	all := template.New("chart").Option("missingkey=zero")
	functions := sprig.TxtFuncMap()
	functions["toYaml"] = toYaml
	functions["include"] = func(name string, data interface{}) (string, error) {
		var out bytes.Buffer
		err := all.ExecuteTemplate(&out, name, data)
		return out.String(), err
	}
	functions["required"] = func(message string, value interface{}) (interface{}, error) {
		if value == nil || value == "" {
			return nil, fmt.Errorf("%s", message)
		}
		return value, nil
	}
	all.Funcs(functions)
	paths, err := filepath.Glob(filepath.Join(chart, "templates", "*"))
	check(err)
	sort.Strings(paths)
	for _, path := range paths {
		text, err := os.ReadFile(path)
		check(err)
		_, err = all.New(filepath.Base(path)).Parse(string(text))
		check(err)
	}
	for _, path := range paths {
		if strings.HasPrefix(filepath.Base(path), "_") || !strings.HasSuffix(path, ".yaml") {
			continue
		}
		var out bytes.Buffer
		check(all.ExecuteTemplate(&out, filepath.Base(path), root))
		fmt.Printf("---\n# Source: %s\n%s\n", filepath.Base(path), strings.TrimSpace(out.String()))
	}
}
