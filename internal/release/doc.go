// Package release installs, upgrades and uninstalls gpuctl's own chart by Helm's
// SDK. The release is one that helm itself sees and can go on with. It is the only
// package that speaks to Helm.
package release
