package config

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/go-viper/mapstructure/v2"
	"github.com/spf13/pflag"
	"github.com/spf13/viper"
)

// AddFlags adds a flag for each setting.
func AddFlags(flags *pflag.FlagSet) {
	for _, k := range keys() {
		switch v := k.fallback.(type) {
		case string:
			flags.String(k.flag(), v, k.usage)
		case bool:
			flags.Bool(k.flag(), v, k.usage)
		case int:
			flags.Int(k.flag(), v, k.usage)
		case time.Duration:
			flags.Duration(k.flag(), v, k.usage)
		case []string:
			flags.StringArray(k.flag(), v, k.usage)
		}
	}
}

// Load reads the settings: file is the path of a YAML file, "" for none. notes name
// variables of the environment that look like settings and are none. An error names
// each key that is wrong, and where it can have been given.
func Load(file string, flags *pflag.FlagSet) (s Settings, notes []string, err error) {
	v := viper.New()
	if file != "" {
		given, err := read(file)
		if err != nil {
			return s, nil, err
		}
		if err := v.MergeConfigMap(given); err != nil {
			return s, nil, fmt.Errorf("read %s: %w", file, err)
		}
	}
	for _, k := range keys() {
		v.SetDefault(k.name, k.fallback)
		if err := errors.Join(v.BindEnv(k.name, k.env()), v.BindPFlag(k.name, flags.Lookup(k.flag()))); err != nil {
			return s, nil, err
		}
	}
	hooks := mapstructure.ComposeDecodeHookFunc(duration, mapstructure.StringToSliceHookFunc(","))
	if err := v.UnmarshalExact(&s, viper.DecodeHook(hooks)); err != nil {
		return s, nil, fmt.Errorf("read the settings of %s: %w", sources(file), err)
	}
	s.LeaderElection.Namespace = cmp.Or(s.LeaderElection.Namespace, os.Getenv("POD_NAMESPACE"))
	s.Webhook.Namespace = cmp.Or(s.Webhook.Namespace, os.Getenv("POD_NAMESPACE"))
	s.Orders.Namespace = cmp.Or(s.Orders.Namespace, os.Getenv("POD_NAMESPACE"))
	if err := s.check(); err != nil {
		return s, nil, fmt.Errorf("the settings of %s cannot work: %w", sources(file), err)
	}
	return s, strangers(os.Environ()), nil
}

// sources names where settings come from.
func sources(file string) string {
	if file == "" {
		return "flags and environment"
	}
	return file + ", flags and environment"
}

// duration reads a duration, and refuses one without a unit: 24 would be 24
// nanoseconds. Zero needs none.
func duration(from, to reflect.Type, value any) (any, error) {
	if to != reflect.TypeFor[time.Duration]() || from == to {
		return value, nil
	}
	d, err := time.ParseDuration(fmt.Sprint(value))
	if err != nil {
		return nil, fmt.Errorf("is %v, not a duration: write 24h, 5m or 10s", value)
	}
	return d, nil
}

// strangers names the variables with gpuctl's prefix that are no settings.
func strangers(environ []string) []string {
	known := map[string]bool{"GPUCTL_HOST_ROOT": true} // the agent's
	for _, k := range keys() {
		known[k.env()] = true
	}
	var out []string
	for _, e := range environ {
		name, _, _ := strings.Cut(e, "=")
		if strings.HasPrefix(name, envPrefix) && !known[name] {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}
