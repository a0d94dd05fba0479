package cluster

import _ "github.com/virtual-kubelet/virtual-kubelet/node"
