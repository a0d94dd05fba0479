package cluster

import (
	"fmt"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"
)

// writeKubeconfig writes a kubeconfig file that says what config says.
func writeKubeconfig(path string, config *rest.Config) error {
	const name = "gpuctl-test"
	k := api.NewConfig()
	k.Clusters[name] = &api.Cluster{Server: config.Host, CertificateAuthorityData: config.CAData}
	k.AuthInfos[name] = &api.AuthInfo{
		ClientCertificateData: config.CertData, ClientKeyData: config.KeyData, Token: config.BearerToken,
	}
	k.Contexts[name] = &api.Context{Cluster: name, AuthInfo: name}
	k.CurrentContext = name
	if err := clientcmd.WriteToFile(*k, path); err != nil {
		return fmt.Errorf("write the kubeconfig %s: %w", path, err)
	}
	return nil
}
