// Package config reads the settings of gpuctl serve: flags count more than the
// environment, that more than the file, and that more than the defaults.
package config
