package gpu

// What changed from release to release of the plugin, as its source has it at
// each tag and as runs of it showed. Everything else is the same from v1.2.2 on.

// orNewest takes the zero Release for Newest.
func (r Release) orNewest() Release {
	if !r.Known() {
		return Newest()
	}
	return r
}

// atLeast reports r >= o.
func (r Release) atLeast(o Release) bool { return r.orNewest().Compare(o) >= 0 }

// NamesAnyVendor reports that r looks an id up without regard to the vendor
// and may name a GPU after somebody else's card: releases before v1.2.2. Name
// is then right for ids that no other vendor uses, and only a guess otherwise.
func (r Release) NamesAnyVendor() bool { return !r.atLeast(Release{1, 2, 2}) }

// watchesNodes: a unit is unhealthy once /dev/vfio/<group> is removed. Before,
// the plugin watched the group's directory in sysfs, which stays.
func (r Release) watchesNodes() bool { return r.atLeast(Release{1, 2, 8}) }

// usesIOMMUFD: an allocation needs vfio device nodes where /dev/iommu exists.
func (r Release) usesIOMMUFD() bool { return r.atLeast(Release{1, 4, 0}) }

// upperCasesEnv: the variable's name is upper-cased, as virt-launcher wants it.
func (r Release) upperCasesEnv() bool { return r.atLeast(Release{1, 4, 0}) }

// ListsAddresses reports whether kubelet gets a unit for every function, by its
// address. Before, it got one for every IOMMU group, by its number.
func (r Release) ListsAddresses() bool { return r.atLeast(Release{1, 5, 0}) }

// CountsDriver reports whether r counts functions bound to d. Of the spellings
// of NVIDIA's driver for Grace, the plugin knows one, and none before v1.5.0.
func (r Release) CountsDriver(d Driver) bool {
	return d == "vfio-pci" || d == "nvgrace_gpu_vfio_pci" && r.atLeast(Release{1, 5, 0})
}

// allocatesOneUnit: the variable holds only the units asked for. Before, it
// held their whole groups.
func (r Release) allocatesOneUnit() bool { return r.atLeast(Release{1, 6, 0}) }
