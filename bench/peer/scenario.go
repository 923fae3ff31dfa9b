package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
)

// Scenario is one frozen cluster and the question "where would the peer put the pending pods?".
type Scenario struct {
	Name                string
	Options             ScenarioOptions
	InstanceTypes       []InstanceTypeSpec
	InstanceTypesByPool map[string][]string
	Objects             []client.Object
}

type ScenarioOptions struct {
	PreferencePolicy   string `json:"preferencePolicy"`   // Respect (default) or Ignore
	MinValuesPolicy    string `json:"minValuesPolicy"`    // Strict (default) or BestEffort
	ReservedCapacity   *bool  `json:"reservedCapacity"`   // feature gate, on unless told otherwise
	Workers            int    `json:"workers"`            // 5 unless told otherwise, as in the peer's own benchmark
	ReservationIDLabel string `json:"reservationIdLabel"` // karpenter.kwok.sh/reservation-id unless told otherwise
	SchedulerConfig    string `json:"schedulerConfig"`    // the peer's SCHEDULER_CONFIG, as text; empty is none
}

// InstanceTypeSpec is the kwok file format (core-api.md §7.1) and what it cannot say.
type InstanceTypeSpec struct {
	Name             string              `json:"name"`
	Architecture     string              `json:"architecture"`
	OperatingSystems []string            `json:"operatingSystems"`
	Resources        corev1.ResourceList `json:"resources"`
	Offerings        []OfferingSpec      `json:"offerings"`

	// Labels become requirements In [value]; null becomes DoesNotExist. Their keys become well known.
	Labels map[string]*string `json:"labels"`
	// KwokLabels false leaves out karpenter.kwok.sh/instance-{size,family,cpu,memory}.
	KwokLabels *bool `json:"kwokLabels"`
	// Overhead replaces the default of 100m cpu and 10Mi memory as a whole.
	Overhead               corev1.ResourceList `json:"overhead"`
	VolumeAttachmentLimits map[string]int      `json:"volumeAttachmentLimits"`
}

// OfferingSpec's keys are matched without regard to case, as kwok's are.
type OfferingSpec struct {
	Price               float64
	Available           *bool
	ReservationCapacity int
	Requirements        []corev1.NodeSelectorRequirement
}

// objectEntry is an element of "objects": either a Kubernetes object or a template to be written out n times.
type objectEntry struct {
	Template   json.RawMessage `json:"template"`
	Count      int             `json:"count"`
	NamePrefix string          `json:"namePrefix"`
}

// assumedCreation is given to objects without a creation time. One instant for all, so that the peer's queue, which breaks
// ties by creation time and then UID, falls back on UID, and UIDs are numbered in the order of the file.
var assumedCreation = metav1.NewTime(time.Date(2025, 1, 1, 0, 0, 0, 0, time.UTC))

// ReadScenario takes one scenario off the decoder, object by object: the text of a hundred thousand pods is never in memory at once.
func ReadScenario(decoder *json.Decoder) (*Scenario, error) {
	scenario := &Scenario{}
	if err := expectDelim(decoder, '{'); err != nil {
		return nil, err
	}
	reader := objectReader{seen: map[objectKey]bool{}}
	for decoder.More() {
		token, err := decoder.Token()
		if err != nil {
			return nil, err
		}
		key, _ := token.(string)
		switch key {
		case "name":
			err = decoder.Decode(&scenario.Name)
		case "options":
			err = decoder.Decode(&scenario.Options)
		case "instanceTypes":
			err = decoder.Decode(&scenario.InstanceTypes)
		case "instanceTypesByPool":
			err = decoder.Decode(&scenario.InstanceTypesByPool)
		case "objects":
			scenario.Objects, err = reader.readAll(decoder)
		default:
			// Whoever writes scenarios may keep notes in them for other readers.
			var ignored json.RawMessage
			err = decoder.Decode(&ignored)
		}
		if err != nil {
			return scenario, fmt.Errorf("%q: %w", key, err)
		}
	}
	return scenario, expectDelim(decoder, '}')
}

type objectKey struct {
	kind, namespace, name string
}

type objectReader struct {
	seen   map[objectKey]bool
	serial int
}

func (r *objectReader) readAll(decoder *json.Decoder) ([]client.Object, error) {
	if err := expectDelim(decoder, '['); err != nil {
		return nil, err
	}
	var objects []client.Object
	for position := 0; decoder.More(); position++ {
		var raw json.RawMessage
		if err := decoder.Decode(&raw); err != nil {
			return nil, err
		}
		read, err := r.readEntry(raw)
		if err != nil {
			return nil, fmt.Errorf("object %d: %w", position, err)
		}
		objects = append(objects, read...)
	}
	return objects, expectDelim(decoder, ']')
}

func (r *objectReader) readEntry(raw json.RawMessage) ([]client.Object, error) {
	var entry objectEntry
	if bytes.Contains(raw, []byte(`"template"`)) {
		if err := json.Unmarshal(raw, &entry); err != nil {
			return nil, err
		}
	}
	// A DaemonSet has a template too, but below spec, so `template` stays empty at this level.
	if entry.Template == nil {
		object, err := decodeObject(raw)
		if err != nil {
			return nil, err
		}
		return []client.Object{object}, r.settle(object)
	}
	template, err := decodeObject(entry.Template)
	if err != nil {
		return nil, err
	}
	prefix := entry.NamePrefix
	if prefix == "" {
		prefix = template.GetName() + "-"
	}
	objects := make([]client.Object, entry.Count)
	for i := range objects {
		object := template.DeepCopyObject().(client.Object)
		object.SetName(fmt.Sprintf("%s%d", prefix, i))
		object.SetUID("")
		if err := r.settle(object); err != nil {
			return nil, err
		}
		objects[i] = object
	}
	return objects, nil
}

func decodeObject(raw []byte) (client.Object, error) {
	decoded, _, err := scheme.Codecs.UniversalDeserializer().Decode(raw, nil, nil)
	if err != nil {
		return nil, err
	}
	object, ok := decoded.(client.Object)
	if !ok {
		return nil, fmt.Errorf("%T is not a single object", decoded)
	}
	return object, nil
}

// settle fills in what an API server would have, and refuses a second object of the same name.
func (r *objectReader) settle(object client.Object) error {
	if object.GetName() == "" {
		return fmt.Errorf("%T without a name", object)
	}
	if !isClusterScoped(object) && object.GetNamespace() == "" {
		object.SetNamespace(metav1.NamespaceDefault)
	}
	key := objectKey{fmt.Sprintf("%T", object), object.GetNamespace(), object.GetName()}
	if r.seen[key] {
		return fmt.Errorf("%s %s/%s appears twice", key.kind, key.namespace, key.name)
	}
	r.seen[key] = true
	if object.GetUID() == "" {
		object.SetUID(types.UID(fmt.Sprintf("00000000-0000-4000-8000-%012d", r.serial)))
	}
	r.serial++
	if created := object.GetCreationTimestamp(); created.IsZero() {
		object.SetCreationTimestamp(assumedCreation)
	}
	if pool, ok := object.(*karpv1.NodePool); ok {
		settlePool(pool)
	}
	return nil
}

// settlePool makes a pool ready, unless the scenario has its own word on that.
func settlePool(pool *karpv1.NodePool) {
	if pool.Spec.Template.Spec.NodeClassRef == nil {
		pool.Spec.Template.Spec.NodeClassRef = &karpv1.NodeClassReference{Group: "karpenter.kwok.sh", Kind: "KWOKNodeClass", Name: "default"}
	}
	if len(pool.Status.Conditions) == 0 {
		pool.StatusConditions().SetTrue(karpv1.ConditionTypeValidationSucceeded)
		pool.StatusConditions().SetTrue(karpv1.ConditionTypeNodeClassReady)
	}
}

func expectDelim(decoder *json.Decoder, want json.Delim) error {
	token, err := decoder.Token()
	if err != nil {
		if errors.Is(err, io.EOF) {
			return io.ErrUnexpectedEOF
		}
		return err
	}
	if token != want {
		return fmt.Errorf("expected %s, found %v", want, token)
	}
	return nil
}
