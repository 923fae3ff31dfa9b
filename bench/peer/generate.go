package main

import (
	"encoding/json"
	"fmt"
	"io"
	"math/rand"
	"sort"
)

// The scenes of core-operations.md §9 and control-plane.md, written as scenarios. They are here to check the harness against the
// peer's known speed; the scenes Kerf is measured on come from its own generator.
var generators = map[string]func(pods int) generated{
	"diverse":             diverse,
	"preferences-respect": func(pods int) generated { return preferences("Respect", pods) },
	"preferences-ignore":  func(pods int) generated { return preferences("Ignore", pods) },
	"mixed":               mixed,
	"hostname-spread":     hostnameSpread,
}

type fields = map[string]any

type generated struct {
	options       fields
	instanceTypes []fields
	objects       []fields
}

func generatorNames() []string {
	var names []string
	for name := range generators {
		names = append(names, name)
	}
	sort.Strings(names)
	return names
}

// Generate writes one object per line, so that a large scenario can be looked at with ordinary tools.
func Generate(kind string, pods int, out io.Writer) error {
	generator, ok := generators[kind]
	if !ok {
		return fmt.Errorf("no generator %q; there are %v", kind, generatorNames())
	}
	scenario := generator(pods)
	write := func(value any) string {
		text, err := json.Marshal(value)
		if err != nil {
			panic(err) // maps of strings and numbers always marshal
		}
		return string(text)
	}
	fmt.Fprintf(out, "{\"name\": %s,\n \"options\": %s,\n \"instanceTypes\": [", write(fmt.Sprintf("%s-%d", kind, pods)), write(scenario.options))
	for i, instanceType := range scenario.instanceTypes {
		fmt.Fprintf(out, "%s\n  %s", comma(i), write(instanceType))
	}
	fmt.Fprint(out, "],\n \"objects\": [")
	for i, object := range scenario.objects {
		fmt.Fprintf(out, "%s\n  %s", comma(i), write(object))
	}
	_, err := fmt.Fprint(out, "]}\n")
	return err
}

func comma(position int) string {
	if position == 0 {
		return ""
	}
	return ","
}

// diverse draws from one generator in the same order as the peer's benchmark does, so the pods are those of its first run.
func diverse(count int) generated {
	draw := benchmarkDraws{rand.New(rand.NewSource(42))}
	objects := []fields{benchmarkPool()}
	add := func(kind string, number int, build func() (labels fields, spec fields)) {
		for i := range number {
			labels, spec := build()
			cpu, memory := draw.cpu(), draw.memory()
			objects = append(objects, pod(fmt.Sprintf("%s-%d", kind, i), labels, spec, cpu, memory))
		}
	}
	generic := func() (fields, fields) { return fields{"my-label": draw.label()}, fields{} }
	spread := func(key string) func() (fields, fields) {
		return func() (fields, fields) {
			labels := fields{"my-label": draw.label()}
			return labels, fields{"topologySpreadConstraints": []fields{{
				"maxSkew": 1, "topologyKey": key, "whenUnsatisfiable": "DoNotSchedule",
				"labelSelector": fields{"matchLabels": fields{"my-label": draw.label()}},
			}}}
		}
	}
	fifth := count / 5
	add("generic", fifth, generic)
	add("zone-spread", fifth, spread("topology.kubernetes.io/zone"))
	add("host-spread", fifth, spread("kubernetes.io/hostname"))
	add("zone-affinity", fifth, func() (fields, fields) {
		labels := fields{"my-affininity": draw.label()}
		return labels, fields{"affinity": fields{"podAffinity": fields{
			"requiredDuringSchedulingIgnoredDuringExecution": []fields{podTerm(labels, "topology.kubernetes.io/zone")}}}}
	})
	add("host-anti-affinity", fifth, func() (fields, fields) {
		labels := fields{"app": "nginx"}
		return labels, fields{"affinity": fields{"podAntiAffinity": fields{
			"requiredDuringSchedulingIgnoredDuringExecution": []fields{podTerm(labels, "kubernetes.io/hostname")}}}}
	})
	add("generic-rest", count-5*fifth, generic)
	return generated{options: fields{}, instanceTypes: fakeTypes(400), objects: objects}
}

func preferences(policy string, count int) generated {
	draw := benchmarkDraws{rand.New(rand.NewSource(42))}
	labels := fields{"app": "nginx"}
	spec := fields{"affinity": fields{
		"nodeAffinity": fields{"preferredDuringSchedulingIgnoredDuringExecution": []fields{{
			"weight": 1,
			"preference": fields{"matchExpressions": []fields{{
				"key": "topology.kubernetes.io/zone", "operator": "In", "values": []string{"test-zone-1"}}}},
		}}},
		"podAntiAffinity": fields{"preferredDuringSchedulingIgnoredDuringExecution": []fields{
			{"weight": 10, "podAffinityTerm": podTerm(labels, "topology.kubernetes.io/zone")},
			{"weight": 1, "podAffinityTerm": podTerm(labels, "kubernetes.io/hostname")},
		}},
	}}
	cpu, memory := draw.cpu(), draw.memory()
	return generated{
		options:       fields{"preferencePolicy": policy},
		instanceTypes: fakeTypes(400),
		objects: []fields{benchmarkPool(),
			{"template": pod("preference", labels, spec, cpu, memory), "count": count, "namePrefix": "preference-"}},
	}
}

func mixed(count int) generated {
	return generated{options: fields{}, instanceTypes: kwokTypes(), objects: []fields{
		pool("default", fields{"requirements": []fields{onDemand}}, nil),
		{"template": pod("small", fields{"app": "small"}, fields{}, "900m", "3100Mi"), "count": count / 2, "namePrefix": "small-"},
		{"template": pod("large", fields{"app": "large"}, fields{}, "3500m", "28Gi"), "count": count - count/2, "namePrefix": "large-"},
	}}
}

func hostnameSpread(count int) generated {
	spread := func(app string) (fields, fields) {
		labels := fields{"app": app}
		return labels, fields{"topologySpreadConstraints": []fields{{
			"maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "DoNotSchedule",
			"labelSelector": fields{"matchLabels": labels}}}}
	}
	smallLabels, small := spread("small")
	largeLabels, large := spread("large")
	below32 := fields{"key": "karpenter.kwok.sh/instance-cpu", "operator": "Lt", "values": []string{"32"}}
	return generated{options: fields{}, instanceTypes: kwokTypes(), objects: []fields{
		pool("default", fields{"requirements": []fields{onDemand, below32}}, nil),
		{"template": pod("small", smallLabels, small, "900m", "3100Mi"), "count": count / 2, "namePrefix": "small-"},
		{"template": pod("large", largeLabels, large, "3500m", "28Gi"), "count": count - count/2, "namePrefix": "large-"},
	}}
}

var onDemand = fields{"key": "karpenter.sh/capacity-type", "operator": "In", "values": []string{"on-demand"}}

func pool(name string, templateSpec fields, limits fields) fields {
	templateSpec["nodeClassRef"] = fields{"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"}
	spec := fields{"template": fields{"spec": templateSpec}}
	if limits != nil {
		spec["limits"] = limits
	}
	return fields{"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": fields{"name": name}, "spec": spec}
}

// benchmarkPool carries the label that the peer's test objects all have: it is one more requirement to compare.
func benchmarkPool() fields {
	made := pool("default", fields{"requirements": []fields{}}, fields{"cpu": "10000000", "memory": "10000000Gi"})
	made["spec"].(fields)["template"].(fields)["metadata"] = fields{"labels": fields{"testing/cluster": "unspecified"}}
	return made
}

func pod(name string, labels, spec fields, cpu, memory string) fields {
	spec["containers"] = []fields{{"name": "main", "image": "pause",
		"resources": fields{"requests": fields{"cpu": cpu, "memory": memory}}}}
	return fields{"apiVersion": "v1", "kind": "Pod", "metadata": fields{"name": name, "labels": labels}, "spec": spec}
}

func podTerm(labels fields, key string) fields {
	return fields{"labelSelector": fields{"matchLabels": labels}, "topologyKey": key}
}

type benchmarkDraws struct{ *rand.Rand }

func (d benchmarkDraws) label() string { return string("abcdefg"[d.Intn(7)]) }

func (d benchmarkDraws) cpu() string {
	return []string{"100m", "250m", "500m", "1000m", "1500m"}[d.Intn(5)]
}

func (d benchmarkDraws) memory() string {
	return []string{"100Mi", "256Mi", "512Mi", "1024Mi", "2048Mi", "4096Mi"}[d.Intn(6)]
}

// fakeTypes are those of the peer's fake provider, requirement for requirement.
func fakeTypes(count int) []fields {
	types := make([]fields, count)
	for i := range types {
		cpu := i + 1
		price := 0.1*float64(cpu) + 0.1*float64(cpu*2*(1<<30))/1e9
		labels := fields{"size": "small", "special": nil, "integer": fmt.Sprint(cpu)}
		if cpu > 4 { // the peer also asks for more than 8Gi, which follows from 2Gi per cpu
			labels["size"], labels["special"] = "large", "optional"
		}
		types[i] = fields{
			"name": fmt.Sprintf("fake-it-%d", i), "architecture": "amd64",
			"operatingSystems": []string{"darwin", "linux", "windows"},
			"resources":        fields{"cpu": fmt.Sprint(cpu), "memory": fmt.Sprintf("%dGi", cpu*2), "pods": fmt.Sprint(cpu * 10)},
			"labels":           labels,
			"kwokLabels":       false,
			"overhead":         fields{"cpu": "100m", "memory": "10Mi"},
			"offerings": []fields{
				offering("spot", "test-zone-1", price), offering("spot", "test-zone-2", price),
				offering("on-demand", "test-zone-1", price), offering("on-demand", "test-zone-2", price),
				offering("on-demand", "test-zone-3", price),
			},
		}
	}
	return types
}

// kwokTypes are the 144 types of the peer's kwok provider, in the order of its file.
func kwokTypes() []fields {
	var types []fields
	for _, cpu := range []int{1, 2, 4, 8, 16, 32, 48, 64, 96, 128, 192, 256} {
		for _, family := range []struct {
			name     string
			gbPerCPU int
		}{{"c", 2}, {"s", 4}, {"m", 8}} {
			for _, system := range []string{"linux", "windows"} {
				for _, architecture := range []string{"amd64", "arm64"} {
					memory := cpu * family.gbPerCPU
					price := 0.025*float64(cpu) + 0.001*float64(memory*(1<<30))/1e9
					var offerings []fields
					for _, zone := range []string{"test-zone-a", "test-zone-b", "test-zone-c", "test-zone-d"} {
						offerings = append(offerings, offering("spot", zone, 0.7*price), offering("on-demand", zone, price))
					}
					types = append(types, fields{
						"name":         fmt.Sprintf("%s-%dx-%s-%s", family.name, cpu, architecture, system),
						"architecture": architecture, "operatingSystems": []string{system},
						"resources": fields{"cpu": fmt.Sprint(cpu), "memory": fmt.Sprintf("%dGi", memory),
							"pods": fmt.Sprint(min(16*cpu, 1024)), "ephemeral-storage": "20Gi"},
						"offerings": offerings,
					})
				}
			}
		}
	}
	return types
}

func offering(capacityType, zone string, price float64) fields {
	return fields{"Price": price, "Available": true, "Requirements": []fields{
		{"key": "karpenter.sh/capacity-type", "operator": "In", "values": []string{capacityType}},
		{"key": "topology.kubernetes.io/zone", "operator": "In", "values": []string{zone}},
	}}
}
