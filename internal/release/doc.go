// Package release keeps gpuctl's Helm release, the same that helm sees.
package release

import (
	_ "helm.sh/helm/v3/pkg/action"
	_ "helm.sh/helm/v3/pkg/chart/loader"
	_ "helm.sh/helm/v3/pkg/cli"
	_ "helm.sh/helm/v3/pkg/cli/values"
	_ "helm.sh/helm/v3/pkg/lint"
	_ "helm.sh/helm/v3/pkg/storage/driver"
)
