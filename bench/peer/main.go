// Command peer asks Karpenter's own scheduler what it would do with a scenario of ours, and how long it takes over it.
//
// It is a measuring stick. The peer is a dependency of this harness and of nothing else in the house; the answers it
// gives are compared with Kerf's, never fed to it.
//
//	scenario.json ─▶ Scenario ─▶ Store, Catalogue ─▶ the peer's Cluster, Topology, Scheduler ─▶ Solve ─▶ Result
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

func main() {
	log.SetLogger(logr.Discard())
	if err := command(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "peer:", err)
		os.Exit(1)
	}
}

func command(arguments []string, out io.Writer) error {
	flags := flag.NewFlagSet("peer", flag.ContinueOnError)
	scenarioPath := flags.String("scenario", "", "one scenario (`file`, - for standard input); the result is one indented JSON object")
	batchPath := flags.String("batch", "", "many scenarios: a `path` to a folder of .json files or a .jsonl file; one result per line")
	generate := flags.String("generate", "", "write a scenario of this `kind` instead: "+strings.Join(generatorNames(), ", "))
	pods := flags.Int("pods", 1000, "with --generate: how many pods")
	repeat := flags.Int("repeat", 1, "solve this many times and keep the fastest")
	timeout := flags.Duration("timeout", 300*time.Second, "give up on one Solve after this long")
	brief := flags.Bool("brief", false, "leave out the names of pods")
	types := flags.Bool("types", false, "write out the instance types of every claim")
	if err := flags.Parse(arguments); err != nil {
		return err
	}
	limits := Limits{Repeat: *repeat, Timeout: *timeout, Detail: WithPods}
	if *types {
		limits.Detail = WithTypes
	}
	if *brief {
		limits.Detail = Brief
	}
	buffered := bufio.NewWriter(out)
	defer buffered.Flush()
	switch {
	case *generate != "":
		return Generate(*generate, *pods, buffered)
	case *scenarioPath != "":
		return runSingle(*scenarioPath, limits, buffered)
	case *batchPath != "":
		return runBatch(*batchPath, limits, buffered)
	}
	return errors.New("one of --scenario, --batch and --generate is needed")
}

func runSingle(path string, limits Limits, out io.Writer) error {
	var in io.Reader = os.Stdin
	if path != "-" {
		file, err := os.Open(path)
		if err != nil {
			return err
		}
		defer file.Close()
		in = file
	}
	scenario, err := ReadScenario(json.NewDecoder(bufio.NewReaderSize(in, 1<<20)))
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	result := Run(scenario, limits)
	encoder := json.NewEncoder(out)
	encoder.SetIndent("", " ")
	if err := encoder.Encode(result); err != nil {
		return err
	}
	if result.Failure != "" && !result.TimedOut {
		return errors.New(result.Failure)
	}
	return nil
}

// runBatch answers every scenario it can. One that cannot be read or asked gets a line with a failure, and the next goes on.
func runBatch(path string, limits Limits, out *bufio.Writer) error {
	encoder := json.NewEncoder(out)
	answer := func(source string, text io.Reader) error {
		scenario, err := ReadScenario(json.NewDecoder(text))
		var result *Result
		if err != nil {
			result = &Result{Name: source, Failure: err.Error()}
			if scenario != nil && scenario.Name != "" {
				result.Name = scenario.Name
			}
		} else {
			if scenario.Name == "" {
				scenario.Name = source
			}
			result = Run(scenario, limits)
		}
		if err := encoder.Encode(result); err != nil {
			return err
		}
		return out.Flush()
	}
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if info.IsDir() {
		return eachFile(path, answer)
	}
	return eachLine(path, answer)
}

func eachFile(folder string, answer func(string, io.Reader) error) error {
	paths, err := filepath.Glob(filepath.Join(folder, "*.json"))
	if err != nil {
		return err
	}
	sort.Strings(paths)
	for _, path := range paths {
		file, err := os.Open(path)
		if err != nil {
			return err
		}
		err = answer(filepath.Base(path), bufio.NewReader(file))
		file.Close()
		if err != nil {
			return err
		}
	}
	return nil
}

func eachLine(path string, answer func(string, io.Reader) error) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	lines := bufio.NewReaderSize(file, 1<<20)
	for number := 1; ; number++ {
		line, err := lines.ReadString('\n')
		if strings.TrimSpace(line) != "" {
			if err := answer(fmt.Sprintf("line %d", number), strings.NewReader(line)); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}
