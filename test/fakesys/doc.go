// Package fakesys builds the part of a Linux machine's /sys and /dev that
// discovery reads, in a directory, from a description of the machine.
//
// The tree is close enough to the kernel's that lspci reads it too:
//
//	lspci -O sysfs.path=DIR/sys/bus/pci -nnk
//
// It is test support. Nothing that ships imports it.
package fakesys
