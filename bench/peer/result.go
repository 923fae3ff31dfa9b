package main

import (
	"bufio"
	"math"
	"os"
	"sort"
	"strconv"
	"strings"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/controllers/provisioning/scheduling"
	requirements "sigs.k8s.io/karpenter/pkg/scheduling"
)

// Result is the answer to one scenario. Failure is set when the peer could not be asked; then the rest is empty.
type Result struct {
	Name           string              `json:"name"`
	Failure        string              `json:"failure,omitempty"`
	Pods           int                 `json:"pods"`
	Placed         int                 `json:"placed"`
	Ignored        int                 `json:"ignored"`
	Unvisited      int                 `json:"unvisited"`
	Nodes          int                 `json:"nodes"`
	DollarsPerHour float64             `json:"dollars_per_hour"`
	Seconds        float64             `json:"seconds"`
	SecondsAll     []float64           `json:"seconds_all,omitempty"`
	CPUSeconds     float64             `json:"cpu_seconds"`
	SetupSeconds   float64             `json:"setup_seconds"`
	PodsPerSecond  float64             `json:"pods_per_second"`
	SetupMB        float64             `json:"setup_mb"`
	SolveMB        float64             `json:"solve_mb"`
	PeakMB         float64             `json:"peak_mb"`
	TimedOut       bool                `json:"timed_out"`
	Errors         map[string]string   `json:"errors"`
	Claims         []Claim             `json:"claims"`
	Existing       map[string][]string `json:"existing,omitempty"`
}

type Claim struct {
	Pool                    string       `json:"pool"`
	CheapestType            string       `json:"cheapestType"`
	Price                   float64      `json:"price"`
	ZoneRequirement         *Requirement `json:"zone_requirement"`
	CapacityTypeRequirement *Requirement `json:"capacity_type_requirement"`
	Types                   int          `json:"types"`
	PodCount                int          `json:"pod_count"`
	TypeNames               []string     `json:"type_names,omitempty"`
	Pods                    []string     `json:"pods,omitempty"`
	// All of them, hostname excepted: it is a placeholder.
	Requirements map[string]*Requirement `json:"requirements,omitempty"`
}

// Requirement is absent (null) when the claim leaves the key alone.
type Requirement struct {
	Operator string   `json:"operator"`
	Values   []string `json:"values"`
}

// Detail says how much of the answer is written out.
type Detail int

const (
	Brief Detail = iota
	WithPods
	WithTypes
)

func (r *Result) tell(stage *stage, results scheduling.Results, detail Detail) {
	r.tellRejected(stage, nil)
	for pod, err := range results.PodErrors {
		r.Errors[podName(pod)] = err.Error()
	}
	for _, claim := range results.NewNodeClaims {
		told := describeClaim(claim, detail)
		r.Claims = append(r.Claims, told)
		r.DollarsPerHour += told.Price
		r.Placed += len(claim.Pods)
	}
	r.Nodes = len(results.NewNodeClaims)
	sort.SliceStable(r.Claims, func(a, b int) bool { return claimOrder(r.Claims[a], r.Claims[b]) })
	if detail > Brief {
		r.Existing = map[string][]string{}
	}
	for _, node := range results.ExistingNodes {
		r.Placed += len(node.Pods)
		if detail > Brief && len(node.Pods) > 0 {
			r.Existing[node.Name()] = podNames(node.Pods)
		}
	}
	r.Unvisited = r.Pods - r.Placed - len(r.Errors)
	if r.Seconds > 0 {
		r.PodsPerSecond = float64(len(stage.pods)-r.Unvisited) / r.Seconds
	}
}

// tellRejected writes down the pods that never reached Solve: turned away one by one, or all of them for one reason.
func (r *Result) tellRejected(stage *stage, all error) {
	r.Errors, r.Claims = map[string]string{}, []Claim{}
	for pod, err := range stage.rejected {
		r.Errors[podName(pod)] = err.Error()
	}
	if all != nil {
		for _, pod := range stage.pods {
			r.Errors[podName(pod)] = all.Error()
		}
	}
}

func describeClaim(claim *scheduling.NodeClaim, detail Detail) Claim {
	told := Claim{
		Pool:                    claim.NodePoolName,
		ZoneRequirement:         describeRequirement(claim.Requirements, corev1.LabelTopologyZone),
		CapacityTypeRequirement: describeRequirement(claim.Requirements, karpv1.CapacityTypeLabelKey),
		Types:                   len(claim.InstanceTypeOptions),
		PodCount:                len(claim.Pods),
	}
	told.CheapestType, told.Price = cheapest(claim.InstanceTypeOptions, claim.Requirements)
	if detail > Brief {
		told.Pods = podNames(claim.Pods)
	}
	if detail > Brief {
		told.Requirements = map[string]*Requirement{}
		for key := range claim.Requirements {
			if key != corev1.LabelHostname {
				told.Requirements[key] = describeRequirement(claim.Requirements, key)
			}
		}
	}
	if detail == WithTypes {
		for _, instanceType := range claim.InstanceTypeOptions {
			told.TypeNames = append(told.TypeNames, instanceType.Name)
		}
	}
	return told
}

// cheapest is what a provider that buys the cheapest thing on the list would buy; equal prices go to the lesser name. A claim
// with nothing launchable (every type's last hope a full reservation) costs nothing and has no type.
func cheapest(instanceTypes cloudprovider.InstanceTypes, claim requirements.Requirements) (string, float64) {
	name, price := "", math.Inf(1)
	for _, instanceType := range instanceTypes {
		for _, offering := range instanceType.Offerings {
			if !offering.Launchable() || !claim.IsCompatible(offering.Requirements, requirements.AllowUndefinedWellKnownLabels) {
				continue
			}
			if offering.Price < price || (offering.Price == price && instanceType.Name < name) {
				name, price = instanceType.Name, offering.Price
			}
		}
	}
	if name == "" {
		return "", 0
	}
	return name, price
}

func describeRequirement(all requirements.Requirements, key string) *Requirement {
	if !all.Has(key) {
		return nil
	}
	requirement := all.Get(key)
	values := requirement.Values()
	sort.Strings(values)
	return &Requirement{Operator: string(requirement.Operator()), Values: values}
}

func claimOrder(a, b Claim) bool {
	if a.Pool != b.Pool {
		return a.Pool < b.Pool
	}
	if a.Price != b.Price {
		return a.Price > b.Price
	}
	if a.PodCount != b.PodCount {
		return a.PodCount > b.PodCount
	}
	return len(a.Pods) > 0 && len(b.Pods) > 0 && a.Pods[0] < b.Pods[0]
}

func podNames(pods []*corev1.Pod) []string {
	names := make([]string, len(pods))
	for i, pod := range pods {
		names[i] = podName(pod)
	}
	sort.Strings(names)
	return names
}

func podName(pod *corev1.Pod) string {
	if pod.Namespace == corev1.NamespaceDefault {
		return pod.Name
	}
	return pod.Namespace + "/" + pod.Name
}

// cpuSeconds is what all threads of this process have used so far: steadier than the clock where neighbours share the machine.
func cpuSeconds() float64 {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		return 0
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano()).Seconds()
}

// startNewPeak makes the kernel forget the peak so far, where it lets us; elsewhere peaks only grow.
func startNewPeak() {
	_ = os.WriteFile("/proc/self/clear_refs", []byte("5"), 0)
}

// peakMB is the most memory this process has held since the last new peak (VmHWM); 0 where there is no /proc.
func peakMB() float64 {
	file, err := os.Open("/proc/self/status")
	if err != nil {
		return 0
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		if rest, ok := strings.CutPrefix(lines.Text(), "VmHWM:"); ok {
			kilobytes, err := strconv.ParseFloat(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(rest), "kB")), 64)
			if err != nil {
				return 0
			}
			return kilobytes / 1024
		}
	}
	return 0
}
