package main

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/controllers/provisioning"
	"sigs.k8s.io/karpenter/pkg/controllers/provisioning/scheduling"
	"sigs.k8s.io/karpenter/pkg/controllers/state"
	"sigs.k8s.io/karpenter/pkg/events"
	"sigs.k8s.io/karpenter/pkg/operator/injection"
	"sigs.k8s.io/karpenter/pkg/operator/options"
	podutils "sigs.k8s.io/karpenter/pkg/utils/pod"
)

// Limits are what the command line may say about a run.
type Limits struct {
	Repeat  int
	Timeout time.Duration
	Detail  Detail
}

// Run asks the peer once per repeat, each time from a freshly built cluster state, and keeps the fastest answer.
func Run(scenario *Scenario, limits Limits) (result *Result) {
	defer func() {
		if cause := recover(); cause != nil {
			result = &Result{Name: scenario.Name, Failure: fmt.Sprintf("panic: %v\n%s", cause, debug.Stack())}
		}
	}()
	for range max(limits.Repeat, 1) {
		once, err := runOnce(scenario, limits)
		if err != nil {
			return &Result{Name: scenario.Name, Failure: err.Error(), TimedOut: errors.Is(err, context.DeadlineExceeded)}
		}
		if result == nil || once.Seconds < result.Seconds {
			once.SecondsAll = append(seconds(result), once.Seconds)
			result = once
		} else {
			result.SecondsAll = append(result.SecondsAll, once.Seconds)
		}
	}
	return result
}

func seconds(result *Result) []float64 {
	if result == nil {
		return nil
	}
	return result.SecondsAll
}

func runOnce(scenario *Scenario, limits Limits) (*Result, error) {
	started := time.Now()
	ctx, err := peerContext(scenario.Options)
	if err != nil {
		return nil, err
	}
	// Setting up gets the same time again, for a scenario that would never come to Solve at all.
	setupCtx, cancelSetup := context.WithTimeout(ctx, limits.Timeout)
	defer cancelSetup()
	stage, err := setUp(setupCtx, scenario)
	if err != nil {
		return nil, err
	}
	result := &Result{Name: scenario.Name, Pods: len(stage.pods) + len(stage.rejected), Ignored: stage.ignored}
	result.SetupSeconds = time.Since(started).Seconds()
	if stage.scheduler == nil {
		result.tellRejected(stage, errNoPools)
		return result, nil
	}

	// The garbage of reading and setting up is ours, not the peer's.
	result.SetupMB = peakMB()
	debug.FreeOSMemory()
	startNewPeak()
	solveCtx, cancelSolve := context.WithTimeout(ctx, limits.Timeout)
	defer cancelSolve()
	solving, cpuBefore := time.Now(), cpuSeconds()
	results, err := stage.scheduler.Solve(solveCtx, stage.pods)
	result.Seconds, result.CPUSeconds = time.Since(solving).Seconds(), cpuSeconds()-cpuBefore
	if err != nil && !errors.Is(err, context.DeadlineExceeded) {
		return nil, fmt.Errorf("solving: %w", err)
	}
	result.SolveMB = peakMB()
	result.PeakMB = max(result.SetupMB, result.SolveMB)
	result.TimedOut = err != nil
	result.tell(stage, results.TruncateInstanceTypes(ctx, scheduling.MaxInstanceTypes), limits.Detail)
	return result, nil
}

// stage is everything Solve needs, and the pods that do not get that far.
type stage struct {
	scheduler *scheduling.Scheduler
	pods      []*corev1.Pod
	rejected  map[*corev1.Pod]error
	ignored   int
}

var errNoPools = errors.New("no dynamic nodepools found")

// setUp does what the peer's Provisioner.Schedule does before Solve. Pods that would wait in an informer cache are handed over
// directly, and are not in the store: the peer looks there only for bound ones.
func setUp(ctx context.Context, scenario *Scenario) (*stage, error) {
	catalogue, err := NewCatalogue(scenario)
	if err != nil {
		return nil, err
	}
	pending, rest, ignored := partition(scenario.Objects)
	store := NewStore(rest)
	quiet := silentRecorder{}
	cluster := state.NewCluster(clock.RealClock{}, store, catalogue)
	if err := fillCluster(ctx, cluster, rest); err != nil {
		return nil, err
	}
	provisioner := provisioning.NewProvisioner(store, quiet, catalogue, cluster, clock.RealClock{}, nil, nil)

	built := &stage{rejected: map[*corev1.Pod]error{}, ignored: ignored}
	for _, pod := range pending {
		if err := provisioner.Validate(ctx, pod); err != nil {
			built.rejected[pod] = fmt.Errorf("ignoring pod, %w", err)
			continue
		}
		built.pods = append(built.pods, pod)
	}
	nodes := cluster.DeepCopyNodes()
	leaving, err := nodes.Deleting().CurrentlyReschedulablePods(ctx, store, clock.RealClock{}, quiet)
	if err != nil {
		return nil, fmt.Errorf("pods of deleting nodes: %w", err)
	}
	leavingUIDs := sets.New[types.UID]()
	for _, pod := range leaving {
		leavingUIDs.Insert(pod.UID)
	}
	built.pods = append(built.pods, leaving...)

	built.scheduler, err = provisioner.NewScheduler(ctx, built.pods, nodes.Active(), leavingUIDs, peerOptions(ctx, scenario.Options)...)
	if errors.Is(err, provisioning.ErrNodePoolsNotFound) {
		return built, nil
	}
	return built, err
}

// partition tells pending pods from everything else. The peer reads kube-scheduler's verdict in the pod's conditions; a
// scenario has no kube-scheduler, so every unbound pod that could have got the verdict counts as having it.
func partition(objects []client.Object) (pending []*corev1.Pod, rest []client.Object, ignored int) {
	for _, object := range objects {
		pod, ok := object.(*corev1.Pod)
		if !ok || podutils.IsScheduled(pod) {
			rest = append(rest, object)
			continue
		}
		if podutils.IsOwnedByDaemonSet(pod) || podutils.IsOwnedByNode(pod) || podutils.IsTerminal(pod) ||
			podutils.IsPreempting(pod) || len(pod.Spec.SchedulingGates) > 0 {
			rest = append(rest, object)
			ignored++
			continue
		}
		pending = append(pending, pod)
	}
	return pending, rest, ignored
}

// fillCluster replays the informers: claims and nodes first, so that pods find the node they are bound to.
func fillCluster(ctx context.Context, cluster *state.Cluster, objects []client.Object) error {
	for _, object := range objects {
		if claim, ok := object.(*karpv1.NodeClaim); ok {
			cluster.UpdateNodeClaim(claim.DeepCopy())
		}
	}
	for _, object := range objects {
		if node, ok := object.(*corev1.Node); ok {
			if err := cluster.UpdateNode(ctx, node.DeepCopy()); err != nil {
				return fmt.Errorf("node %s: %w", node.Name, err)
			}
		}
	}
	for _, object := range objects {
		switch object := object.(type) {
		case *corev1.Pod:
			// A pod on a node the peer does not track yet is retried by its informer, and never seen here either.
			if err := cluster.UpdatePod(ctx, object.DeepCopy()); client.IgnoreNotFound(err) != nil {
				return fmt.Errorf("pod %s: %w", object.Name, err)
			}
		case *appsv1.DaemonSet:
			if err := cluster.UpdateDaemonSet(ctx, object); err != nil {
				return fmt.Errorf("daemonset %s: %w", object.Name, err)
			}
		}
	}
	return nil
}

const defaultWorkers = 5

func workers(given ScenarioOptions) int {
	if given.Workers > 0 {
		return given.Workers
	}
	return defaultWorkers
}

func peerContext(given ScenarioOptions) (context.Context, error) {
	config, err := options.ParseSchedulerConfiguration(given.SchedulerConfig)
	if err != nil {
		return nil, fmt.Errorf("schedulerConfig: %w", err)
	}
	peer := &options.Options{
		CPURequests:       int64(workers(given)) * 1000,
		BatchMaxDuration:  10 * time.Second,
		BatchIdleDuration: time.Second,
		PreferencePolicy:  options.PreferencePolicyRespect,
		MinValuesPolicy:   options.MinValuesPolicyStrict,
		IgnoreDRARequests: true,
		FeatureGates:      options.DefaultFeatureGates(),
		SchedulerConfig:   config,
	}
	switch given.PreferencePolicy {
	case "", "Respect":
	case "Ignore":
		peer.PreferencePolicy = options.PreferencePolicyIgnore
	default:
		return nil, fmt.Errorf("preferencePolicy %q is neither Respect nor Ignore", given.PreferencePolicy)
	}
	switch given.MinValuesPolicy {
	case "", "Strict":
	case "BestEffort":
		peer.MinValuesPolicy = options.MinValuesPolicyBestEffort
	default:
		return nil, fmt.Errorf("minValuesPolicy %q is neither Strict nor BestEffort", given.MinValuesPolicy)
	}
	if given.ReservedCapacity != nil {
		peer.FeatureGates.ReservedCapacity = *given.ReservedCapacity
	}
	return options.ToContext(injection.WithControllerName(context.Background(), "provisioner"), peer), nil
}

func peerOptions(ctx context.Context, given ScenarioOptions) []scheduling.Options {
	peer := options.FromContext(ctx)
	chosen := []scheduling.Options{
		scheduling.DisableReservedCapacityFallback,
		scheduling.NumConcurrentReconciles(workers(given)),
		scheduling.MinValuesPolicy(peer.MinValuesPolicy),
	}
	if peer.PreferencePolicy == options.PreferencePolicyIgnore {
		chosen = append(chosen, scheduling.IgnorePreferences)
	}
	return chosen
}

type silentRecorder struct{}

func (silentRecorder) Publish(...events.Event) {}
