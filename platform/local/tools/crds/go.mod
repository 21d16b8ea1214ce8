module neuroscale.dev/tools/crds

go 1.26.6

require (
	github.com/argoproj/argo-cd/v3 v3.5.7
	github.com/kserve/kserve v0.20.0
)
