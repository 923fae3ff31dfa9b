package main

import (
	_ "k8s.io/api/core/v1"
	_ "k8s.io/client-go/kubernetes/scheme"
	_ "sigs.k8s.io/controller-runtime/pkg/client"
	_ "sigs.k8s.io/karpenter/kwok/apis/v1alpha1"
	_ "sigs.k8s.io/karpenter/pkg/controllers/provisioning"
	_ "sigs.k8s.io/karpenter/pkg/controllers/provisioning/scheduling"
	_ "github.com/awslabs/operatorpkg/status"
	_ "github.com/go-logr/logr"
	_ "k8s.io/utils/clock"
)

func main() {}
