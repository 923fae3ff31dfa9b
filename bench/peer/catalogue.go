package main

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/awslabs/operatorpkg/status"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/sets"
	kwokv1alpha1 "sigs.k8s.io/karpenter/kwok/apis/v1alpha1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/scheduling"
)

const defaultReservationIDLabel = "karpenter.kwok.sh/reservation-id"

// Catalogue is a cloud that can be asked for prices and nothing else.
type Catalogue struct {
	all    []*cloudprovider.InstanceType
	byPool map[string][]*cloudprovider.InstanceType
}

// The peer keeps its well-known labels in a package variable. We remember what it held at the start, so that one scenario of a
// batch leaves no labels behind for the next.
var wellKnownAtStart = karpv1.WellKnownLabels.Clone()

// NewCatalogue builds the instance types, and teaches the peer their labels.
func NewCatalogue(scenario *Scenario) (*Catalogue, error) {
	teachLabels(scenario)
	catalogue := &Catalogue{}
	byName := map[string]*cloudprovider.InstanceType{}
	for _, spec := range scenario.InstanceTypes {
		if byName[spec.Name] != nil {
			return nil, fmt.Errorf("instance type %q appears twice", spec.Name)
		}
		instanceType := newInstanceType(spec)
		byName[spec.Name] = instanceType
		catalogue.all = append(catalogue.all, instanceType)
	}
	if scenario.InstanceTypesByPool == nil {
		return catalogue, nil
	}
	catalogue.byPool = map[string][]*cloudprovider.InstanceType{}
	for pool, names := range scenario.InstanceTypesByPool {
		catalogue.byPool[pool] = []*cloudprovider.InstanceType{}
		for _, name := range names {
			if byName[name] == nil {
				return nil, fmt.Errorf("pool %q names an unknown instance type %q", pool, name)
			}
			catalogue.byPool[pool] = append(catalogue.byPool[pool], byName[name])
		}
	}
	return catalogue, nil
}

func teachLabels(scenario *Scenario) {
	for key := range karpv1.WellKnownLabels {
		if !wellKnownAtStart.Has(key) {
			karpv1.WellKnownLabels.Delete(key)
		}
	}
	for _, spec := range scenario.InstanceTypes {
		for key := range spec.Labels {
			karpv1.WellKnownLabels.Insert(key)
		}
		for _, offering := range spec.Offerings {
			for _, requirement := range offering.Requirements {
				karpv1.WellKnownLabels.Insert(requirement.Key)
			}
		}
	}
	label := scenario.Options.ReservationIDLabel
	if label == "" {
		label = defaultReservationIDLabel
	}
	cloudprovider.ReservationIDLabel = label
	cloudprovider.ReservedCapacityLabels = sets.New(label)
}

func newInstanceType(spec InstanceTypeSpec) *cloudprovider.InstanceType {
	requirements := scheduling.NewRequirements(
		scheduling.NewRequirement(corev1.LabelInstanceTypeStable, corev1.NodeSelectorOpIn, spec.Name),
		scheduling.NewRequirement(corev1.LabelArchStable, corev1.NodeSelectorOpIn, spec.Architecture),
		scheduling.NewRequirement(corev1.LabelOSStable, corev1.NodeSelectorOpIn, spec.OperatingSystems...),
		scheduling.NewRequirement(corev1.LabelTopologyZone, corev1.NodeSelectorOpIn, offeredValues(spec, corev1.LabelTopologyZone)...),
		scheduling.NewRequirement(karpv1.CapacityTypeLabelKey, corev1.NodeSelectorOpIn, offeredValues(spec, karpv1.CapacityTypeLabelKey)...),
	)
	if spec.KwokLabels == nil || *spec.KwokLabels {
		for key, value := range kwokLabels(spec) {
			requirements.Add(scheduling.NewRequirement(key, corev1.NodeSelectorOpIn, value))
		}
	}
	for key, value := range spec.Labels {
		if value == nil {
			requirements.Add(scheduling.NewRequirement(key, corev1.NodeSelectorOpDoesNotExist))
		} else {
			requirements.Add(scheduling.NewRequirement(key, corev1.NodeSelectorOpIn, *value))
		}
	}
	overhead := spec.Overhead
	if overhead == nil {
		overhead = corev1.ResourceList{
			corev1.ResourceCPU:    resource.MustParse("100m"),
			corev1.ResourceMemory: resource.MustParse("10Mi"),
		}
	}
	capacity := spec.Resources.DeepCopy()
	if _, ok := capacity[corev1.ResourcePods]; !ok {
		capacity[corev1.ResourcePods] = resource.MustParse("110")
	}
	return &cloudprovider.InstanceType{
		Name:                   spec.Name,
		Requirements:           requirements,
		Offerings:              newOfferings(spec.Offerings),
		Capacity:               capacity,
		VolumeAttachmentLimits: spec.VolumeAttachmentLimits,
		Overhead:               &cloudprovider.InstanceTypeOverhead{KubeReserved: overhead},
	}
}

func newOfferings(specs []OfferingSpec) cloudprovider.Offerings {
	offerings := make(cloudprovider.Offerings, len(specs))
	for i, spec := range specs {
		requirements := scheduling.NewRequirements()
		for _, requirement := range spec.Requirements {
			requirements.Add(scheduling.NewRequirement(requirement.Key, requirement.Operator, requirement.Values...))
		}
		offerings[i] = &cloudprovider.Offering{
			Price:               spec.Price,
			Available:           spec.Available == nil || *spec.Available,
			ReservationCapacity: spec.ReservationCapacity,
			Requirements:        requirements,
		}
	}
	return offerings
}

// offeredValues is the union over all offerings, available or not, in the order they are first named.
func offeredValues(spec InstanceTypeSpec, key string) []string {
	var values []string
	known := sets.New[string]()
	for _, offering := range spec.Offerings {
		for _, requirement := range offering.Requirements {
			if requirement.Key != key {
				continue
			}
			for _, value := range requirement.Values {
				if !known.Has(value) {
					known.Insert(value)
					values = append(values, value)
				}
			}
		}
	}
	return values
}

var awsStyleName = regexp.MustCompile(`^\w+\.(nano|micro|small|medium|large|\d*xlarge|metal)$`)

func kwokLabels(spec InstanceTypeSpec) map[string]string {
	cpu, memory := spec.Resources[corev1.ResourceCPU], spec.Resources[corev1.ResourceMemory]
	size := cpu.String()
	if match := awsStyleName.FindStringSubmatch(spec.Name); match != nil {
		size = match[1]
	}
	family := spec.Name
	if cut := strings.IndexAny(spec.Name, ".-"); cut >= 0 {
		family = spec.Name[:cut]
	} else if family != "" {
		family = family[:1]
	}
	return map[string]string{
		kwokv1alpha1.InstanceSizeLabelKey:   size,
		kwokv1alpha1.InstanceFamilyLabelKey: family,
		kwokv1alpha1.InstanceCPULabelKey:    cpu.String(),
		kwokv1alpha1.InstanceMemoryLabelKey: memory.String(),
	}
}

var errOnlyPrices = errors.New("the harness's cloud only answers questions about instance types")

func (c *Catalogue) GetInstanceTypes(_ context.Context, pool *karpv1.NodePool) ([]*cloudprovider.InstanceType, error) {
	if c.byPool != nil {
		if instanceTypes, ok := c.byPool[pool.Name]; ok {
			return instanceTypes, nil
		}
	}
	return c.all, nil
}

func (c *Catalogue) Create(context.Context, *karpv1.NodeClaim) (*karpv1.NodeClaim, error) {
	return nil, errOnlyPrices
}

func (c *Catalogue) Delete(context.Context, *karpv1.NodeClaim) error { return errOnlyPrices }

func (c *Catalogue) Get(context.Context, string) (*karpv1.NodeClaim, error) {
	return nil, errOnlyPrices
}

func (c *Catalogue) List(context.Context) ([]*karpv1.NodeClaim, error) { return nil, errOnlyPrices }

func (c *Catalogue) IsDrifted(context.Context, *karpv1.NodeClaim) (cloudprovider.DriftReason, error) {
	return "", nil
}

func (c *Catalogue) Reboot(context.Context, *karpv1.NodeClaim, string) error {
	return cloudprovider.NewNodeRebootNotImplementedError()
}

func (c *Catalogue) RepairPolicies() []cloudprovider.RepairPolicy { return nil }

func (c *Catalogue) Name() string { return "kerf-bench-peer" }

func (c *Catalogue) GetSupportedNodeClasses() []status.Object {
	return []status.Object{&kwokv1alpha1.KWOKNodeClass{}}
}
