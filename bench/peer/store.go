package main

import (
	"context"
	"fmt"
	"reflect"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kwokv1alpha1 "sigs.k8s.io/karpenter/kwok/apis/v1alpha1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
)

// Store answers Get and List from memory as an informer cache would: typed objects, copied on the way out, pods indexed by
// node. controller-runtime's fake client answers the same questions through JSON, and that time
// would be charged to the peer, whose operator reads from a cache.
//
// Writes go to the embedded nil client and panic: a scheduling run has none.
type Store struct {
	client.Client
	byType     map[reflect.Type]*shelf
	podsByNode map[string][]client.Object
}

type shelf struct {
	inOrder []client.Object
	byKey   map[client.ObjectKey]client.Object
}

func NewStore(objects []client.Object) *Store {
	store := &Store{byType: map[reflect.Type]*shelf{}, podsByNode: map[string][]client.Object{}}
	for _, object := range objects {
		kind := reflect.TypeOf(object).Elem()
		if store.byType[kind] == nil {
			store.byType[kind] = &shelf{byKey: map[client.ObjectKey]client.Object{}}
		}
		shelf := store.byType[kind]
		shelf.inOrder = append(shelf.inOrder, object)
		shelf.byKey[client.ObjectKeyFromObject(object)] = object
		if pod, ok := object.(*corev1.Pod); ok {
			store.podsByNode[pod.Spec.NodeName] = append(store.podsByNode[pod.Spec.NodeName], pod)
		}
	}
	return store
}

func (s *Store) Scheme() *runtime.Scheme { return scheme.Scheme }

func (s *Store) Get(_ context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	kind := reflect.TypeOf(into).Elem()
	if isClusterScoped(into) {
		key.Namespace = "" // the peer asks for a volume by the namespace of its pod
	}
	if shelf := s.byType[kind]; shelf != nil {
		if object, ok := shelf.byKey[key]; ok {
			reflect.ValueOf(into).Elem().Set(reflect.ValueOf(object.DeepCopyObject()).Elem())
			return nil
		}
	}
	kinds, _, err := scheme.Scheme.ObjectKinds(into)
	if err != nil {
		return err
	}
	// The words of controller-runtime's cache, kind in the place of resource included: they end up in the peer's messages.
	return apierrors.NewNotFound(schema.GroupResource{Group: kinds[0].Group, Resource: kinds[0].Kind}, key.Name)
}

func (s *Store) List(_ context.Context, into client.ObjectList, opts ...client.ListOption) error {
	items, ok := reflect.TypeOf(into).Elem().FieldByName("Items")
	if !ok {
		return fmt.Errorf("%T has no items", into)
	}
	options := (&client.ListOptions{}).ApplyOptions(opts)
	candidates, err := s.candidates(items.Type.Elem(), options)
	if err != nil {
		return err
	}
	copied := options.UnsafeDisableDeepCopy == nil || !*options.UnsafeDisableDeepCopy
	var found []runtime.Object
	for _, object := range candidates {
		if options.Namespace != "" && object.GetNamespace() != options.Namespace {
			continue
		}
		if options.LabelSelector != nil && !options.LabelSelector.Matches(labelsOf(object)) {
			continue
		}
		if copied {
			found = append(found, object.DeepCopyObject())
		} else {
			found = append(found, object)
		}
	}
	return meta.SetList(into, found)
}

// candidates applies the field selector. The peer selects by field in one way only when it schedules: pods of a node.
func (s *Store) candidates(kind reflect.Type, options *client.ListOptions) ([]client.Object, error) {
	if options.FieldSelector != nil && !options.FieldSelector.Empty() {
		nodeName, ok := options.FieldSelector.RequiresExactMatch("spec.nodeName")
		if !ok || kind != reflect.TypeFor[corev1.Pod]() {
			return nil, fmt.Errorf("no index for %s by %s", kind.Name(), options.FieldSelector)
		}
		return s.podsByNode[nodeName], nil
	}
	if shelf := s.byType[kind]; shelf != nil {
		return shelf.inOrder, nil
	}
	return nil, nil
}

type labelView map[string]string

func labelsOf(object client.Object) labelView { return object.GetLabels() }

func (l labelView) Has(key string) bool { _, ok := l[key]; return ok }

func (l labelView) Get(key string) string { return l[key] }

func (l labelView) Lookup(key string) (string, bool) { value, ok := l[key]; return value, ok }

func isClusterScoped(object client.Object) bool {
	switch object.(type) {
	case *corev1.Node, *corev1.Namespace, *corev1.PersistentVolume,
		*storagev1.StorageClass, *storagev1.CSINode, *storagev1.CSIDriver, *storagev1.VolumeAttachment,
		*schedulingv1.PriorityClass,
		*karpv1.NodePool, *karpv1.NodeClaim, *kwokv1alpha1.KWOKNodeClass:
		return true
	}
	return false
}
